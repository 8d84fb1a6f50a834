"""Tasks of two parts, and forms and buttons of any name: what is meant has to be picked out of the sentence."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from holotron.suites.kit.words import COLOURS, LINKS, ORDINALS, THINGS, TODOS, TOPICS
from holotron.suites.pages.builder import PageBuilder, PageContent, capital, opener, view
from holotron.suites.pages.data import read_data
from holotron.suites.pages.task import template
from holotron.suites.pages.templates.forms import FORM, thanks
from holotron.suites.pages.values import quoted, value_of

# Labels of fields and what kind of thing is written into them.
LABELS: Sequence[tuple[str, str]] = tuple(read_data("choices")["form_fields"].items())
BOXES: Sequence[str] = read_data("choices")["form_boxes"]
SENDING = ("Send", "Submit", "Save", "OK", "Continue", "Next", "Apply", "Create", "Done")


@template()
def todo_tick_add(s: PageBuilder) -> PageContent:
    """A list in which something is ticked and to which something is added, in either order."""
    picked = s.some(s.fresh(TODOS if s.maybe() else [thing.title() for thing in THINGS]), 8)
    items, new = picked[: s.number(3, 7)], picked[7]
    done = [s.maybe(0.3) for _ in items]
    chosen = s.number(0, len(items) - 1)
    done[chosen] = False
    tick, add = quoted(s, items[chosen]), quoted(s, new)
    text = s.wording("todo_tick_add", tick=tick, add=add)
    lines = "".join(
        f'<li class="item"><label><input type="checkbox"{" checked" if is_done else ""}> {escape(item)}</label></li>'
        for item, is_done in zip(items, done, strict=True)
    )
    listed = f'<ul class="items">{lines}</ul>'
    bare = s.maybe(0.3)
    field = '<input id="new" type="text">' if bare else s.field("new", s.pick("New entry", "Add an item", "What else?"))
    button = s.submit("Add", "Add to list", "Add item", "+", "OK")
    form = s.form(f'<div class="row">{field}{button if bare else f"<div class=field>{button}</div>"}</div>')
    title = s.pick("Packing list", "To do", "Shopping", "For the party", "This week")
    wanted = [is_done or index == chosen for index, is_done in enumerate(done)]
    adds_first = text.lower().find(new.lower()) < text.lower().find(items[chosen].lower())
    data = {"wanted": wanted, "new": new, "by_key": s.maybe(), "adds_first": adds_first}
    return PageContent(text, s.heading(title) + (form + listed if s.maybe(0.4) else listed + form), data, title)


@template()
def login_open(s: PageBuilder) -> PageContent:
    """Behind the log-in there are sections."""
    user, password = s.user(), s.password()
    sections = s.some((*LINKS, *TOPICS), s.number(3, 6))
    wanted = s.number(0, len(sections) - 1)
    text = s.wording("login_open", user=user, password=password, section=quoted(s, sections[wanted]))
    form = s.form(
        s.field("user", s.pick("User name", "Username", "Login", "Member")),
        s.field("password", s.pick("Password", "Your password"), "password"),
        s.submit("Log in", "Sign in", "Enter"),
    )
    kind, around = s.pick(("link", ""), ("button", "row"), ("tile", "grid"))
    listed = f'<div class="{around}">{"".join(opener(kind, name, "section") for name in sections)}</div>'
    body = view("form", s.heading(s.pick("Log in", "Members", "Welcome")), form, first=True)
    body += view("inside", s.heading(f"Hello {user}"), listed) + view("section", '<h1 id="title"></h1>', s.prose(3))
    data = {"user": user, "password": password, "section": sections[wanted], "by_key": s.maybe()}
    return PageContent(text, body, data, "Log in")


@template()
def search_add(s: PageBuilder) -> PageContent:
    """A field in the bar above, and hits with a button each."""
    query = s.pick(s.coined(), *s.some(s.fresh(THINGS), 2), f"{s.pick(*COLOURS)} {s.pick(*s.fresh(THINGS))}")
    shades = s.some(s.fresh(COLOURS), s.number(2, 5))
    hits = [capital(f"{shade} {query}") for shade in shades]
    wanted = s.number(0, min(2, len(hits) - 1))
    word, deed = s.pick(("Add to cart", "add"), ("Open", "open"), ("Save", "save"), ("Details", "open"))
    said, title = quoted(s, query), quoted(s, hits[wanted])
    text = s.wording("search_add", query=said, deed=deed, deed_big=capital(deed), nth=ORDINALS[wanted], title=title)
    hint = s.pick("Search", "Name of a product", "What do you need?", "Type a word")
    name = s.pick("Finder", "Store", "Catalogue", "Flea market")
    field = f'<input id="query" class="short" placeholder="{hint}" autocomplete="off">'
    button = s.submit("Search", "Go", "Find")
    bold = s.maybe()
    colours = "background:var(--accent);color:var(--on);padding:1em" if bold else "border:1px solid;padding:1em"
    bar = f'<div class="between" style="{colours}"><b>{name}</b>{s.form(f"<div class=row>{field}{button}</div>")}</div>'
    body = bar + view("start", s.prose(2), first=True) + view("found", '<p id="count"></p><div id="hits"></div>')
    body += view("end", '<h2 id="title"></h2>', s.prose(2))
    data = {
        "query": query,
        "hits": hits,
        "wanted": wanted,
        "word": word,
        "linked": deed == "open" and s.maybe(),
        "count": s.pick("{} found", "{} results", "Hits: {}", "We found {} things."),
        "by_key": s.maybe(),
    }
    return PageContent(text, body, data, name)


def _pairs(s: PageBuilder, pairs: Sequence[tuple[str, str]]) -> str:
    """What goes where, in a sentence."""
    shape = s.saying("pairs")
    said = [shape.format(label=label, lower=label.lower(), value=quoted(s, value)) for label, value in pairs]
    return s.pick(", ", " and ", "; ").join(said)


@template()
def any_form(s: PageBuilder) -> PageContent:
    """Some fields of a form that has more of them, perhaps a box to tick, and a button of some name."""
    labels = s.some(LABELS, s.number(1, 5))
    wanted = sorted(s.some(range(len(labels)), min(len(labels), s.number(1, 3))))
    values = {index: value_of(s, labels[index][1]) for index in wanted}
    boxes = s.some(BOXES, s.pick(0, 0, 1, 2, 3))
    ticked = s.pick(None, *boxes)
    sending = s.pick(*SENDING)
    text = s.wording(
        "any_form",
        pairs=_pairs(s, [(labels[index][0], values[index]) for index in wanted]),
        tick=s.pick(", tick {}", " and check {}", ", with {} ticked").format(quoted(s, ticked)) if ticked else "",
        send=quoted(s, sending),
        lower=sending.lower() if sending != "OK" else "confirm",
    )
    parts = [s.field(f"f{index}", label) for index, (label, _) in enumerate(labels)]
    parts += [s.check(f"b{index}", box) for index, box in enumerate(boxes)]
    title = s.pick("Details", "Request", "New entry", "Registration", "Form", "Your order")
    other = s.optional(0.4, lambda: s.button("other", s.pick("Cancel", "Back", "Clear")))
    intro = s.optional(0.3, lambda: s.prose(1))
    form = s.form(*parts, f'<div class="row">{s.submit(sending)}{other}</div>')
    body = view("form", s.heading(title), intro, form, first=True)
    data = {
        "fields": [[f"f{index}", value] for index, value in values.items()],
        "boxes": [[f"b{index}", box == ticked] for index, box in enumerate(boxes)],
        "by_key": not boxes and s.maybe(0.3),
    }
    return PageContent(text, body + thanks(s, "Thank you", "Saved", "Done"), data, title, FORM)


@template(wide=True)
def press_any(s: PageBuilder) -> PageContent:
    """Many buttons and links, one of which is meant."""
    topics, count = s.fresh((*LINKS, *TOPICS)), s.number(4, 24)
    drawn = (
        s.pick(s.coined().title(), s.pick(*topics), f"{s.coined()} {s.coined()}".capitalize()) for _ in range(count)
    )
    names = list(dict.fromkeys(drawn))
    wanted = s.pick(*names)
    tags = {name: s.pick("button", "link") for name in names}
    text = s.wording("press_any", name=quoted(s, wanted), tag=tags[wanted])

    def thing(name: str) -> str:
        if tags[name] == "link":
            return f'<a href="#" class="thing">{escape(name)}</a>'
        return f'<button type="button" class="thing {s.pick("", "main", "small")}">{escape(name)}</button>'

    groups, left = [], list(names)
    while left:
        count = s.number(1, 8)
        inside, left = "".join(thing(name) for name in left[:count]), left[count:]
        kind = s.pick("row", "row end", "grid", "between", "tile row")
        groups.append(f'<div class="{kind}" style="margin:.8em 0">{inside}</div>{s.optional(0.5, lambda: s.prose(1))}')
    title = s.pick("Overview", "Start", "Control panel", "Contents")
    data = {"wanted": wanted, "done": s.pick("Done.", f"You chose {wanted}.", "Thank you.")}
    return PageContent(text, s.heading(title) + "".join(groups), data, title)
