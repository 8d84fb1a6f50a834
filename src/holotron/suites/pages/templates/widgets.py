"""Small things to operate: votes, counters, comments, calendars."""

from __future__ import annotations

from html import escape

from holotron.suites.kit.words import CITIES, COLOURS, MONTHS, SENTENCES, THINGS
from holotron.suites.pages.builder import PageBuilder, PageContent, view
from holotron.suites.pages.task import template


@template()
def poll(s: PageBuilder) -> PageContent:
    question, options = s.pick(
        ("Which colour do you like best?", [colour.title() for colour in s.some(COLOURS, s.number(3, 5))]),
        ("Where shall we go next year?", s.some(s.fresh(CITIES), s.number(3, 6))),
        ("What should we buy first?", [f"A {thing}" for thing in s.some(s.fresh(THINGS), s.number(3, 5))]),
    )
    index = s.number(0, len(options) - 1)
    text = s.wording("poll", option=options[index])
    heading = s.heading(s.pick("Poll", "Your opinion", "Vote"))
    prose = s.prose(1)
    form = s.form(s.radios("option", question, options), s.submit("Vote", "Send", "Submit vote"))
    body = view("form", heading, prose, form, first=True)
    return PageContent(text, body + view("thanks", s.heading("Thank you for voting")), {"index": index}, "Poll")


@template()
def stepper(s: PageBuilder) -> PageContent:
    """Numbers that are changed by plus and minus alone."""
    names = s.some(("Adults", "Children", "Rooms", "Tickets", "Nights", "Dogs"), s.number(1, 3))
    before = [s.number(0, 3) for _ in names]
    index = s.number(0, len(names) - 1)
    after = s.pick(*(n for n in range(5) if n != before[index]))
    text = s.wording("stepper", name=names[index].lower() if s.maybe() else names[index], n=after)
    minus, plus = s.pick(("−", "+"), ("-", "+"), ("◂", "▸"))
    rows = "".join(
        f'<div class="item between"><span>{name}</span><span class="row">'
        f'<button type="button" class="step" data-at="{at}" data-by="-1">{minus}</button>'
        f'<b class="number">{before[at]}</b>'
        f'<button type="button" class="step" data-at="{at}" data-by="1">{plus}</button></span></div>'
        for at, name in enumerate(names)
    )
    wanted = [after if at == index else number for at, number in enumerate(before)]
    title = s.pick("Your trip", "Booking", "How many?")
    return PageContent(text, s.heading(title) + s.prose(1) + rows, {"after": wanted}, title)


@template()
def comment(s: PageBuilder) -> PageContent:
    """A remark below an article."""
    written = s.pick(*SENTENCES)
    text = s.wording("comment", text=written)
    others = "".join(
        f'<div class="item"><b>{s.person()}</b><br>{escape(s.pick(*SENTENCES))}</div>' for _ in range(s.number(0, 3))
    )
    form = s.form(
        s.field("text", s.pick("Your comment", "Comment", "Say something"), "area"), s.submit("Post", "Send", "Comment")
    )
    article = s.heading(s.pick("A walk in May", "New bakery", "The old bridge", "Summer reading"))
    article += "".join(s.prose(5) for _ in range(s.number(1, 3)))
    body = f'{article}<h2>Comments</h2><div id="all">{others}</div>{form}'
    return PageContent(text, body, {"text": written}, "Article")


@template(held_out=True)
def calendar(s: PageBuilder) -> PageContent:
    """A day is chosen in a month, which may not be the one that shows."""
    year, month, day = s.number(2025, 2028), s.number(0, 11), s.number(1, 28)
    start = year * 12 + month + s.number(-2, 2)
    text = s.wording("calendar", day=day, month=MONTHS[month], year=year)
    back, forth = s.pick(("‹", "›"), ("«", "»"), ("Previous", "Next"))
    body = (
        f'{s.heading(s.pick("Choose a day", "Appointment", "When?"))}<div class="tile" style="max-width:460px">'
        f'<div class="between">{s.button("back", back)}<b id="month"></b>{s.button("forth", forth)}</div>'
        '<table id="days"></table></div>'
    )
    data = {"start": start, "wanted": year * 12 + month, "day": str(day), "months": MONTHS}
    return PageContent(text, body, data, "Calendar")
