"""Searching, and what is found."""

from __future__ import annotations

from html import escape

from holotron.suites.kit.words import COLOURS, ORDINALS, SENTENCES, THINGS
from holotron.suites.pages.behaviour import own_script, shared_script
from holotron.suites.pages.builder import PageBuilder, PageContent, capital, view
from holotron.suites.pages.task import template
from holotron.suites.pages.values import quoted

ENDINGS = (
    "buying guide", "for beginners", "test and reviews", "history", "repair tips", "shop", "care and cleaning",
    "in art",
)  # fmt: skip
# Every query finds something; only the right one finds what is wanted. Another search is always possible.
SEARCH_SCRIPT = shared_script("searches")


def _page(s: PageBuilder, start: str) -> str:
    small = s.maybe(0.4)
    field = s.field("query", s.pick("Search", "Find", "What are you looking for?")).replace(
        "input id", f"input {'class=short ' if small else ''}id"
    )
    box, found = s.form_in_row(field, "Search", "Go", "Find"), '<p id="count" class="soft"></p><div id="results"></div>'
    return box + view("start", start, first=True) + view("found", found)


def _results(query: str, s: PageBuilder, count: int) -> list[list[str]]:
    return [[f"{capital(query)}: {ending}", s.pick(*SENTENCES)] for ending in s.some(ENDINGS, count)]


@template()
def search_open(s: PageBuilder) -> PageContent:
    thing = s.pick(*s.fresh(THINGS))
    query = s.pick(
        thing,
        s.coined(),
        s.person(),
        f"{s.pick(*COLOURS)} {thing}",
        f"{thing} {s.pick('museum', 'repair', 'prices', 'club')}",
    )
    said = quoted(s, query)
    results = _results(query, s, s.number(4, 6))
    mode = s.number(0, 2)
    if mode == 0:
        wanted = -1
        text = s.wording("search", query=said)
    elif mode == 1:
        wanted = s.number(0, 2)
        text = s.wording("search_open_nth", query=said, nth=ORDINALS[wanted], number=wanted + 1)
    else:
        wanted = s.number(0, len(results) - 1)
        text = s.wording("search_open_title", query=said, title=results[wanted][0])
    title = s.pick("Search", "Library", "Encyclopedia", "Find anything")
    body = s.heading(title) + _page(s, s.prose(2)) + view("result", '<h2 id="title"></h2>', s.prose(4))
    others = _results("something else", s, 3)
    data = {"query": query, "results": results, "others": others, "wanted": wanted, "by_key": s.maybe(0.6)}
    return PageContent(text, body, data, title, SEARCH_SCRIPT + own_script("search_open"))


@template(held_out=True)
def search_ask(s: PageBuilder) -> PageContent:
    """What is asked for stands in the results."""
    name = s.person()
    phone = f"0{s.number(100, 999)} {s.number(100, 999)} {s.number(100, 999)}"
    kind, value = s.pick(("phone number", phone), ("room", f"{s.pick('A', 'B', 'C')}{s.number(100, 499)}"))
    text = s.wording("search_ask", kind=kind, name=name)
    results = [[name, f"{capital(kind)}: {value}"]]
    others = [["Nobody found", "Please check the name."]]
    title = s.pick("Staff", "Phone book", "People")
    script = SEARCH_SCRIPT + 'aim({ answer: data.value, steps: () => (found() ? [read(".result")] : searching()) });'
    data = {"query": name, "results": results, "others": others, "value": value, "by_key": s.maybe(0.6)}
    return PageContent(text, s.heading(title) + _page(s, s.prose(2)), data, title, script)


@template()
def site_search_ask(s: PageBuilder) -> PageContent:
    """A shop's search, whose results have prices."""
    things = s.some(s.fresh(THINGS), 4)
    thing = things[0]
    query = f"{s.pick(*COLOURS)} {thing}"
    price = f"${s.price()}"
    results = [
        [query.title(), f"{price} · in stock"],
        *([f"{s.pick(*COLOURS)} {thing}".title() + " XL", f"${s.price()}"] for _ in range(2)),
    ]
    text = s.wording("site_search_ask", query=query)
    listed = "".join(
        f'<div class="tile"><div class="swatch" style="background:hsl({s.number(0, 359)} 40% 70%)"></div>'
        f"{escape(other.title())}</div>"
        for other in things[1:]
    )
    body = s.heading(s.pick("Shop", "Department store", "Flea market")) + _page(s, f'<div class="grid">{listed}</div>')
    script = SEARCH_SCRIPT + 'aim({ answer: data.price, steps: () => (found() ? [read(".result")] : searching()) });'
    others = [["Nothing found", "Try another word."]]
    data = {"query": query, "results": results, "others": others, "price": price, "by_key": s.maybe(0.6)}
    return PageContent(text, body, data, "Shop", script)
