"""Forms of several pages, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holotron.suites.kit.words import THINGS
from holotron.suites.pages.builder import PageBuilder, PageContent, view
from holotron.suites.pages.data import read_data
from holotron.suites.pages.task import template
from holotron.suites.pages.templates.forms import thanks


def _step(s: PageBuilder, number: int, heading: str) -> str:
    return f'{s.heading(heading)}<p class="soft">Step {number} of 3</p>'


@template()
def order_wizard(s: PageBuilder) -> PageContent:
    """Three pages of a form, one after the other."""
    name, city, thing = s.person(), s.pick("Berlin", "Lisbon", "Osaka", "Denver", "Cairo"), s.pick(*s.fresh(THINGS))
    street = f"{s.pick('Oak', 'Mill', 'Lake', 'Hill', 'Station')} Street {s.number(1, 99)}"
    ways = s.some(("Standard", "Express", "Pick-up", "Overnight"), 3)
    way = s.pick(*ways)
    text = s.wording("order_wizard", thing=thing, name=name, street=street, city=city, way=way)
    following = s.pick("Next", "Continue", "Next step")
    going_on = s.button("next-one", following, "main")
    body = view("one", _step(s, 1, "Who are you?"), s.field("name", "Name"), going_on, first=True)
    place = s.field("street", "Street") + s.field("city", "City")
    buttons = s.button("back-two", "Back") + s.button("next-two", following, "main")
    body += view("two", _step(s, 2, "Where shall it go?"), place, f'<div class="row">{buttons}</div>')
    finish = s.button("finish", s.pick("Finish", "Place order", "Order now"), "main")
    buttons = s.button("back-three", "Back") + finish
    sent = s.radios("way", "Delivery", ways)
    body += view("three", _step(s, 3, "How shall we send it?"), sent, f'<div class="row">{buttons}</div>')
    data = {"name": name, "street": street, "city": city, "way": ways.index(way)}
    return PageContent(text, body + thanks(s, "Thank you for your order"), data, "Order")


@template(held_out=True)
def survey(s: PageBuilder) -> PageContent:
    """Questions with radio buttons, one page each."""
    bank: Mapping[str, Sequence[str]] = read_data("choices")["survey"]
    asked = s.some(list(bank), s.number(2, 3))
    given = [s.pick(*bank[question]) for question in asked]
    listed = ", ".join(f'"{answer}"' for answer in given)
    text = s.wording("survey", listed=listed)
    body = ""
    for index, question in enumerate(asked):
        label = "Send" if index == len(asked) - 1 else "Next"
        going_on = f'<button type="button" class="main go">{label}</button>'
        radios = s.radios(f"r{index}", question, bank[question])
        body += view(f"q{index}", s.heading("Survey"), radios, going_on, first=index == 0)
    wanted = [bank[question].index(answer) for question, answer in zip(asked, given, strict=True)]
    return PageContent(text, body + thanks(s, "Thank you for your time"), {"wanted": wanted}, "Survey")
