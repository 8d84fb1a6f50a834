"""More than fits on the screen: pages of a list, and what lies below the fold."""

from __future__ import annotations

from html import escape

from holotron.suites.kit.words import COLOURS, SENTENCES, THINGS
from holotron.suites.pages.behaviour import READ_HERE, own_script, shared_script
from holotron.suites.pages.builder import PageBuilder, PageContent, capital, view
from holotron.suites.pages.task import template

# data.items are shown data.size at a time; numbered buttons, or only one step back and forth.
PAGING_SCRIPT = shared_script("paging")


def _paged(s: PageBuilder, numbers: bool) -> tuple[dict[str, object], list[str], str]:
    size, pages = s.number(4, 7), s.number(3, 6)
    names = [f"{colour} {thing}".title() for colour in COLOURS for thing in s.fresh(THINGS)]
    items = sorted(s.some(names, size * pages - s.number(0, 2))) if s.maybe() else s.some(names, size * pages)
    labels = s.pick(("Previous", "Next"), ("‹", "›"), ("« Back", "More »"), ("Prev", "Next"))
    data: dict[str, object] = {"items": items, "size": size, "start": 1, "labels": labels, "numbers": numbers}
    title = s.pick("Catalogue", "Collection", "All items", "Archive")
    places = '<div id="items"></div><div class="pages" id="pages" style="align-items:center"></div>'
    return data, items, s.heading(title) + places


@template()
def page_number(s: PageBuilder) -> PageContent:
    numbers = s.maybe(0.65)
    data, items, body = _paged(s, numbers)
    last = -(-len(items) // int(str(data["size"])))
    wanted = s.number(2, last)
    text = s.wording("page_number", n=wanted)
    if wanted == last and s.maybe():
        text = s.wording("page_last")
    elif wanted == 2 and s.maybe():
        text = s.wording("page_next")
    script = PAGING_SCRIPT + "aim({ solved: () => here === data.wanted, steps: () => [turn(data.wanted)] });"
    return PageContent(text, body, {**data, "wanted": wanted, "known": True}, "Catalogue", script)


@template()
def page_find(s: PageBuilder) -> PageContent:
    """The item is on one of the pages; the task does not say on which."""
    data, items, body = _paged(s, s.maybe(0.4))
    size = int(str(data["size"]))
    index = s.number(0, min(len(items), size * 4) - 1)
    text = s.wording("page_find", item=items[index])
    body = view("all", body, first=True) + view("one", s.heading(items[index]), s.prose(2))
    data |= {"item": items[index], "known": False}
    return PageContent(text, body, data, "Catalogue", PAGING_SCRIPT + own_script("page_find"))


def _long_text(s: PageBuilder, paragraphs: int) -> str:
    return "".join(
        f"<h2>{number + 1}. {s.pick('About', 'Rules', 'Rights', 'Times', 'Costs', 'Safety', 'Duties', 'Data')}</h2>"
        f"<p>{' '.join(s.some(SENTENCES, 6))}</p>"
        for number in range(paragraphs)
    )


@template()
def scroll_button(s: PageBuilder) -> PageContent:
    """The buttons stand at the end of a long text."""
    yes, no = s.pick(
        ("Accept", "Decline"), ("I agree", "I do not agree"), ("Continue", "Cancel"), ("Subscribe", "Leave")
    )
    wanted = yes if s.maybe(0.7) else no
    text = s.wording("scroll_button", label=wanted)
    buttons = f'<div class="row">{s.button("yes", yes, "main")}{s.button("no", no)}</div>'
    title = s.pick("Terms of use", "House rules", "Conditions", "Read this first")
    body = view("text", s.heading(title), _long_text(s, s.number(6, 11)), buttons, first=True)
    return PageContent(text, body + view("end", s.heading(f"{wanted}: noted"), s.prose(1)), {"wanted": wanted}, title)


@template()
def scroll_ask(s: PageBuilder) -> PageContent:
    """What is asked for stands in a section further down."""
    facts = {
        "membership fee": f"${s.price()}",
        "phone number": s.phone(),
        "opening time": f"{s.number(6, 11)}:{s.pick('00', '15', '30')} am",
        "door code": str(s.number(1000, 9999)),
        "bus line": str(s.number(2, 99)),
        "room number": str(s.number(100, 499)),
    }
    what = s.pick(*facts)
    text = s.wording("scroll_ask", what=what)
    sections = [
        f"<h2>{capital(name)}</h2>{s.prose(3)}<p{' id=here' if name == what else ''}>The {name} is <b>{value}</b>.</p>"
        for name, value in s.some(list(facts.items()), len(facts))
    ]
    title = s.pick("Guide for members", "Visitor information", "Good to know")
    body = s.heading(title) + s.prose(4) + "".join(sections)
    return PageContent(text, body, {"value": facts[what]}, title, READ_HERE)


@template()
def scroll_list(s: PageBuilder) -> PageContent:
    """A list in a frame of its own that scrolls."""
    items = s.some([f"{colour} {thing}".title() for colour in COLOURS for thing in s.fresh(THINGS)], s.number(14, 26))
    item = s.pick(*items)
    text = s.wording("scroll_list", item=item)
    rows = "".join(f'<div class="item pick" style="cursor:pointer">{escape(name)}</div>' for name in items)
    style = f"height: {s.number(220, 330)}px; overflow-y: auto; max-width: 520px; padding: 0"
    box = f'<div class="tile" style="{style}">{rows}</div>'
    title = s.pick("Choose one", "Stock list", "Our range")
    return PageContent(text, s.heading(title) + s.prose(1) + box + s.prose(2), {"item": item}, title)
