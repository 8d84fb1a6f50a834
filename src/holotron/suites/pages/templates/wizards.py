"""Forms of several pages, one after the other."""

from __future__ import annotations

from holotron.suites.kit.words import THINGS
from holotron.suites.pages.builder import PageBuilder, PageContent, view
from holotron.suites.pages.task import template
from holotron.suites.pages.templates.forms import thanks


def _step(number: int) -> str:
    return f'<p class="soft">Step {number} of 3</p>'


@template()
def order_wizard(s: PageBuilder) -> PageContent:
    """Three pages of a form, one after the other."""
    name, city, thing = s.person(), s.pick("Berlin", "Lisbon", "Osaka", "Denver", "Cairo"), s.pick(*s.fresh(THINGS))
    street = f"{s.pick('Oak', 'Mill', 'Lake', 'Hill', 'Station')} Street {s.number(1, 99)}"
    ways = s.some(("Standard", "Express", "Pick-up", "Overnight"), 3)
    way = s.pick(*ways)
    text = s.phrase(
        "Order the {thing} for {name}, {street}, {city}, {way} delivery",
        "Have the {thing} sent to {name}, {street} in {city} by {way}",
        "Complete the order: {name}, {street}, {city}, shipping {way}",
        "Go through checkout as {name}, {street}, {city}, with {way}",
        "Fill in the order for {name} at {street}, {city} and choose {way}",
        thing=thing,
        name=name,
        street=street,
        city=city,
        way=way,
    )
    following = s.pick("Next", "Continue", "Next step")
    body = view(
        "one",
        s.heading("Who are you?"),
        _step(1),
        s.field("name", "Name"),
        s.button("next-one", following, "main"),
        first=True,
    )
    body += view(
        "two",
        s.heading("Where shall it go?"),
        _step(2),
        s.field("street", "Street"),
        s.field("city", "City"),
        f'<div class="row">{s.button("back-two", "Back")}{s.button("next-two", following, "main")}</div>',
    )
    finish = s.button("finish", s.pick("Finish", "Place order", "Order now"), "main")
    body += view(
        "three",
        s.heading("How shall we send it?"),
        _step(3),
        s.radios("way", "Delivery", ways),
        f'<div class="row">{s.button("back-three", "Back")}{finish}</div>',
    )
    data = {"name": name, "street": street, "city": city, "way": ways.index(way)}
    return PageContent(text, body + thanks(s, "Thank you for your order"), data, "Order")


@template(held_out=True)
def survey(s: PageBuilder) -> PageContent:
    """Questions with radio buttons, one page each."""
    bank = {
        "How often do you visit us?": ("Daily", "Weekly", "Monthly", "Never"),
        "How did you find us?": ("Friends", "Newspaper", "Internet", "By chance"),
        "Your age?": ("Under 18", "18 to 40", "41 to 65", "Over 65"),
        "Would you come again?": ("Yes", "Maybe", "No"),
        "How was the food?": ("Good", "Fair", "Bad"),
    }
    asked = s.some(list(bank), s.number(2, 3))
    given = [s.pick(*bank[question]) for question in asked]
    listed = ", ".join(f'"{answer}"' for answer in given)
    text = s.phrase(
        "Answer the survey with {listed}",
        "Take the survey: {listed}",
        "Fill in the questionnaire, answers in order: {listed}",
        "Choose {listed} in the survey and send it",
        "Survey answers: {listed}",
        listed=listed,
    )
    body = ""
    for index, question in enumerate(asked):
        label = "Send" if index == len(asked) - 1 else "Next"
        body += view(
            f"q{index}",
            s.heading("Survey"),
            s.radios(f"r{index}", question, bank[question]),
            f'<button type="button" class="main go">{label}</button>',
            first=index == 0,
        )
    wanted = [bank[question].index(answer) for question, answer in zip(asked, given, strict=True)]
    return PageContent(text, body + thanks(s, "Thank you for your time"), {"wanted": wanted}, "Survey")
