"""Values that stand on the page, to be changed or copied."""

from __future__ import annotations

from html import escape

from holotron.suites.kit.html import definitions
from holotron.suites.pages.behaviour import own_script
from holotron.suites.pages.builder import PageBuilder, PageContent, capital, view
from holotron.suites.pages.task import template
from holotron.suites.pages.templates.forms import FORM, FORM_SCRIPT, thanks


def _profile(s: PageBuilder) -> dict[str, str]:
    name = s.person()
    return {
        "Name": name,
        "E-mail": s.mail(name),
        "Phone": f"0{s.number(100, 999)} {s.number(10000, 99999)}",
        "City": s.pick("Berlin", "Oslo", "Lima", "Perth", "Rome"),
        "Nickname": s.user(),
    }


def _change(s: PageBuilder, profile: dict[str, str]) -> tuple[str, str, str]:
    """Which value becomes what, and how that is said."""
    label = s.pick(*profile)
    new = _profile(s)[label]
    text = s.wording("edit", what=label.lower() if label != "E-mail" else "e-mail", new=new)
    return label, new, text


@template()
def edit_profile(s: PageBuilder) -> PageContent:
    profile = _profile(s)
    label, new, text = _change(s, profile)
    ids = {name: f"f{index}" for index, name in enumerate(profile)}
    changed = profile | {label: new}
    fields = [[ids[name], value] for name, value in changed.items()]
    opening = s.maybe(0.6)
    title = s.pick("Profile", "My account", "Your details")
    edit = s.button("edit", s.pick("Edit", "Edit profile", "Change"), "main")
    body = view("show", s.heading(title), definitions(profile), edit, first=opening)
    heading = s.heading(s.pick("Edit profile", "Change details"))
    filled = (s.field(ids[name], name, value=value) for name, value in profile.items())
    form = s.form(*filled, s.submit("Save", "Save changes", "Update"))
    body += view("form", heading, form, first=not opening)
    said = f"<p>{s.pick('Saved.', 'Your changes were saved.')}</p>"
    body += view("thanks", s.heading(title), said, definitions(changed))
    return PageContent(text, body, {"fields": fields}, title, FORM_SCRIPT + own_script("edit_profile"))


@template(held_out=True)
def edit_inline(s: PageBuilder) -> PageContent:
    """Each value has its own button, which turns it into a field."""
    profile = _profile(s)
    label, new, text = _change(s, profile)
    word = s.pick("Edit", "Change", "Modify")
    rows = "".join(
        f'<tr data-name="{name}"><td class="soft">{name}</td><td class="value">{escape(value)}</td>'
        f'<td><button type="button" class="small edit">{word}</button></td></tr>'
        for name, value in profile.items()
    )
    save = s.pick("Save", "OK", "Done")
    data = {"old": profile, "label": label, "new": new, "word": word, "save": save}
    return PageContent(text, s.heading(s.pick("Profile", "Settings")) + f"<table>{rows}</table>", data, "Profile")


@template()
def copy_code(s: PageBuilder) -> PageContent:
    """Something that stands on the page has to be typed."""
    letters = "ABCDEFGHJKLMNPRSTUVWXYZ23456789"
    code, other = (
        "".join(s.chance.choices(letters, k=s.number(4, 6))) + s.pick("", f"-{s.number(10, 99)}") for _ in range(2)
    )
    what = s.pick("voucher", "code", "booking number", "coupon", "PIN")
    text = s.wording("copy_code", what=what)
    decoy = f"<p class='soft'>{s.pick('Customer', 'Page', 'Reference')}: {other}</p>" if s.maybe(0.6) else ""
    body = view(
        "form",
        s.heading(s.pick("Confirm", "Your gift", "One more step")),
        f"<p>{s.pick('Your', 'This is your', 'The')} {what}: <b>{code}</b></p>",
        decoy,
        s.prose(1),
        s.form(s.field("code", capital(what)), s.submit("Confirm", "Redeem", "Submit", "Continue")),
        first=True,
    )
    body += thanks(s, "Confirmed", "All done")
    return PageContent(text, body, {"fields": [["code", code]], "by_key": s.maybe(0.4)}, "Confirm", FORM)
