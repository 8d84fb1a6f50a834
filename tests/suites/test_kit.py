"""The kit that pages and screens are made of."""

from __future__ import annotations

import random
from html import escape

from holotron.suites.kit.draws import Draws
from holotron.suites.kit.html import definitions, document, link, options, report, rows
from holotron.suites.screens.words import Words


def test_texts_of_screens_need_no_escaping() -> None:
    for seed in range(300):
        words = Words(random.Random(seed))
        for text in (words.label(), words.value(), words.caption(), words.paragraph(2), words.product(), words.time()):
            assert escape(text) == text


def test_draws_follow_from_the_seed_alone() -> None:
    def drawn(seed: int) -> list[object]:
        draws = Draws(random.Random(seed))
        return [draws.pick(*range(9)), draws.some("abcdef", 3), draws.maybe(), draws.number(1, 99)]

    assert drawn(3) == drawn(3)
    assert len({str(drawn(seed)) for seed in range(20)}) == 20


def test_some_are_different_and_no_more_than_there_are() -> None:
    draws = Draws(random.Random(1))
    assert sorted(draws.some("abc", 5)) == ["a", "b", "c"]
    assert len(set(draws.some("abcdef", 4))) == 4


def test_what_is_optional_is_made_only_where_it_is_wanted() -> None:
    draws, made = Draws(random.Random(1)), []

    def make() -> str:
        made.append(1)
        return "x"

    assert draws.optional(0.0, make) == ""
    assert not made
    assert draws.optional(1.0, make) == "x"


def test_html_is_escaped_where_it_is_text() -> None:
    assert link("A & B") == '<a href="#">A &amp; B</a>'
    assert options(["<1", "2"], "2") == "<option>&lt;1</option><option selected>2</option>"
    assert definitions({"Name": "<b>"}) == "<dl><dt>Name</dt><dd>&lt;b&gt;</dd></dl>"
    assert rows([["<b>1</b>", "2"]]) == "<tr><td><b>1</b></td><td>2</td></tr>"
    assert "<style>p{}</style></head><body>x</body>" in document("p{}", "x")
    page = report("A & B", "p{}", "<p>x</p>")
    assert "<title>A &amp; B</title><style>p{}</style></head><body><p>x</p></body>" in page
