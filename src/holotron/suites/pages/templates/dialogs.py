"""Dialogs and banners that want an answer."""

from __future__ import annotations

from collections.abc import Mapping

from holotron.suites.pages.builder import PageBuilder, PageContent, capital, dialog, view
from holotron.suites.pages.data import read_data
from holotron.suites.pages.task import template

# Title, message, the labels of the two buttons, and what a task asks for by each.
DIALOGS = (
    ("Turn on notifications?", "You can change this later.", ("Allow", "Not now"),
     ("allow notifications", "dismiss the notifications dialog")),
    ("Leave this page?", "Your changes are not saved.", ("Leave", "Stay"), ("leave the page", "stay on the page")),
    ("New version", "A new version is there.", ("Update", "Later"),
     ("update to the new version", "put the update off until later")),
    ("Your session is about to end", "Do you want to go on?", ("Stay signed in", "Sign out"),
     ("stay signed in", "sign out")),
    ("Use your location?", "To show shops near you.", ("Share", "Do not share"),
     ("share the location", "do not share the location")),
    ("Rate this page", "It takes a minute.", ("Rate now", "No thanks"),
     ("rate the page now", "say no thanks to the rating")),
)  # fmt: skip


@template()
def dialog_answer(s: PageBuilder) -> PageContent:
    """A dialog stands open when the page appears."""
    title, message, labels, said = s.pick(*DIALOGS)
    wanted = s.number(0, 1)
    text = s.wording("dialog_answer", said=capital(said[wanted]), label=labels[wanted])
    order = s.some((0, 1), 2)
    buttons = "".join(s.button(f"b{i}", labels[i], "main" if i == 0 else "") for i in order)
    box = dialog(f'<h2>{title}</h2><p>{message}</p><div class="row {s.pick("", "end")}">{buttons}</div>')
    body = s.heading(s.pick("News", "Weather", "My notes")) + s.prose(4) + s.prose(4) + box
    return PageContent(text, body, {"wanted": wanted}, title)


@template()
def dialog_confirm(s: PageBuilder) -> PageContent:
    """A button whose deed has to be confirmed."""
    deeds: Mapping[str, str] = read_data("choices")["confirmed"]
    shown = s.some(list(deeds), s.number(2, 4))
    chosen = s.pick(*shown)
    text = s.wording("dialog_confirm", deed=capital(deeds[chosen]), label=chosen, said=deeds[chosen])
    yes, no = s.pick(("Yes", "No"), ("OK", "Cancel"), ("Confirm", "Cancel"), ("Continue", "Go back"))
    rows = "".join(
        f'<div class="item between"><span>{s.pick("Manage", "Option", "Action")} {i + 1}</span>'
        f'<button type="button" class="deed" data-deed="{label}">{label}</button></div>'
        for i, label in enumerate(shown)
    )
    pair = [s.button("yes", yes, "main"), s.button("no", no)]
    if s.maybe():
        pair.reverse()
    question = f'<h2>Are you sure?</h2><p id="question"></p><div class="row end">{"".join(pair)}</div>'
    body = s.heading("Manage") + s.prose(1) + rows + dialog(question, hidden=True)
    return PageContent(text, body, {"deed": chosen}, "Manage")


@template()
def cookie_banner(s: PageBuilder) -> PageContent:
    """A banner has to go before, or instead of, what is to be done."""
    labels = s.pick(
        ("Accept all", "Reject all"), ("Accept", "Decline"), ("OK", "No thanks"), ("Allow", "Only necessary")
    )
    wanted = s.number(0, 1)
    links = s.some(("Opening hours", "Prices", "Directions", "Photos", "Booking", "History"), 4)
    link = s.pick(*links)
    only = s.maybe(0.35)
    how = ("accept the cookies", "reject the cookies")[wanted]
    wording = "cookies" if only else "cookies_and_link"
    text = s.wording(wording, how=capital(how), how_said=how, label=labels[wanted], link=link)
    listed = "".join(
        f'<li style="margin:.7em 0"><a href="#" class="go" data-to="{name}">{name}</a></li>' for name in links
    )
    heading = s.heading(s.pick("Town museum", "Swimming pool", "City zoo", "Castle"))
    body = view("start", heading, s.prose(3), f"<ul>{listed}</ul>", s.prose(3), first=True)
    body += view("there", s.heading(link), s.prose(3))
    buttons = "".join(s.button(f"b{i}", labels[i], "main" if i == 0 else "") for i in s.some((0, 1), 2))
    said = s.pick("We use cookies to make this site better.", "This site uses cookies.", "Your privacy matters to us.")
    inside = f'<p>{said}</p><div class="row">{buttons}</div>'
    if s.maybe(0.6):
        banner = f'<div class="banner" id="cookies" style="{s.pick("bottom:0", "top:0")}">{inside}</div>'
    else:
        banner = dialog(f"<h2>Cookies</h2>{inside}", "cookies")
    return PageContent(text, body + banner, {"wanted": wanted, "only": only, "link": link}, "Welcome")
