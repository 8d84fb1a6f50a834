"""Grounding and reading on held-out screens: what is asked, and how answers are judged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from holotron.agent.chat import Message, Reply
from holotron.eval.grounding import GROUNDING, HEIGHTS, Pointed
from holotron.eval.reading import QUESTIONS, READING, ReadOut, distance
from holotron.eval.screens import evaluate_screens, report_text
from holotron.eval.statistics import typical
from holotron.model.image import image_size
from holotron.suites.screens.generate import HELD_OUT_FROM


def pointed(point: tuple[int, int] | None, box: tuple[float, float, float, float] = (10, 20, 40, 30)) -> Pointed:
    return Pointed("pages", 1, 0.1, "button", "the button", box, point, (800, 600))


def test_a_point_is_right_inside_the_box_and_only_there() -> None:
    assert pointed((10, 20)).right
    assert pointed((40, 30)).right
    assert not pointed((41, 25)).right
    assert not pointed((25, 19)).right
    assert not pointed(None).right


def test_elements_are_sized_by_their_shorter_side() -> None:
    assert pointed(None).side == "under 12"
    assert pointed(None, (0, 0, 12, 300)).side == "under 20"
    assert pointed(None, (0, 0, 64, 64)).side == "64 and more"


class Middle:
    """A policy that points at the middle of every screen, and once says nothing of use."""

    name = "middle"
    asked: ClassVar[list[str]] = []
    shown: ClassVar[set[tuple[int, int]]] = set()

    async def open(self) -> Middle:
        return self

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        assert schema is not None
        assert new[0].image is not None
        Middle.asked.append(new[0].text)
        Middle.shown.add(image_size(new[0].image))
        return Reply("no" if len(Middle.asked) == 1 else json.dumps({"x": 500, "y": 500}))

    async def close(self) -> None: ...


def test_the_same_is_asked_of_the_same_pixels_at_every_height(monkeypatch: pytest.MonkeyPatch) -> None:
    Middle.asked = ["the first"]
    monkeypatch.setattr("holotron.eval.screens.RandomModel", Middle)
    found = evaluate_screens(HEIGHTS, "random", 2, ["miniwob"], at_once=1, heights=(210, 420))
    low, high = ([each for each in found["questions"] if each["height"] == height] for height in (210, 420))
    assert low
    assert [(each["seed"], each["description"], each["box"]) for each in low] == [
        (each["seed"], each["description"], each["box"]) for each in high
    ]
    assert {each["point"] for each in (*low, *high)} == {(80, 105)}, "a point is counted on the picture that was shown"
    assert {name: rate["of"] for name, rate in found["by_height"].items()} == {
        "210 px high": len(low),
        "420 px high": len(high),
    }


def test_a_page_is_shown_as_the_agent_shows_it_and_points_are_counted_on_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Middle.asked, Middle.shown = ["the first"], set()
    monkeypatch.setattr("holotron.eval.screens.RandomModel", Middle)
    monkeypatch.setattr("holotron.suites.screens.pages.SIZES", ((1000, 950),))
    found = evaluate_screens(GROUNDING, "random", 1, ["pages"], at_once=1)
    assert found["questions"]
    assert Middle.shown == {(704, 544)}
    assert {(each["point"], each["size"]) for each in found["questions"]} == {((500, 475), (1000, 950))}


def test_every_question_of_a_screen_is_asked_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    Middle.asked = []
    monkeypatch.setattr("holotron.eval.screens.RandomModel", Middle)
    found = evaluate_screens(GROUNDING, "random", 3, ["widgets"], at_once=1)
    questions = found["questions"]
    assert len(questions) == len(Middle.asked) == found["all"]["of"] > 3
    assert {question["seed"] for question in questions} == {HELD_OUT_FROM, HELD_OUT_FROM + 1, HELD_OUT_FROM + 2}
    assert sorted(Middle.asked) == sorted(f"Find: {question['description']}" for question in questions)
    assert sum(question["point"] is None for question in questions) == 1
    for part in ("by_kind", "by_side", "by_source"):
        assert sum(rate["of"] for rate in found[part].values()) == len(questions)
        assert sum(rate["right"] for rate in found[part].values()) == found["all"]["right"]
    assert list(found["by_side"]) == ["under 12", "under 20", "under 32", "under 64", "64 and more"]
    text = report_text(found)
    assert all(f"\nby {part}\n" in text for part in ("source", "side", "kind"))
    assert "64 and more      nothing to ask about" in text or found["by_side"]["64 and more"]["of"]


def test_letters_are_counted_as_they_are_wrong() -> None:
    assert distance("", "") == 0
    assert distance("kitten", "sitting") == 3
    assert distance("abc", "") == distance("", "abc") == 3
    assert ReadOut("pages", 1, 0.1, "Export", "Export").right
    assert not ReadOut("pages", 1, 0.1, "Export", "export").right
    assert ReadOut("pages", 1, 0.1, "Export", "Sxport").wrong == 1
    assert ReadOut("pages", 1, 0.1, "ab", "something else").wrong == 2


class Reader:
    """A policy that says what it is given to say, and else nothing."""

    name = "reader"
    asked: ClassVar[list[str]] = []
    knows: ClassVar[dict[int, str]] = {}

    async def open(self) -> Reader:
        return self

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        assert schema is None
        assert new[0].image is not None
        Reader.asked.append(new[0].text)
        return Reply(Reader.knows.get(len(Reader.asked), ""))

    async def close(self) -> None: ...


def test_what_is_read_is_compared_letter_by_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    Reader.asked, Reader.knows = [], {}
    monkeypatch.setattr("holotron.eval.screens.RandomModel", Reader)
    nothing = evaluate_screens(READING, "random", 2, ["widgets"], at_once=1)
    assert 2 <= nothing["all"]["of"] == len(Reader.asked) <= 2 * QUESTIONS
    assert (nothing["all"]["right"], nothing["all"]["characters"]) == (0, 0.0)
    assert all(re.fullmatch(r'Read: \{"x":\d+,"y":\d+\}', asked) for asked in Reader.asked)
    # Told one of the answers, it has that one right.
    first = sum(question["seed"] == HELD_OUT_FROM for question in nothing["questions"])
    Reader.asked, Reader.knows = [], dict.fromkeys(range(1, first + 1), nothing["questions"][0]["text"])
    one = evaluate_screens(READING, "random", 2, ["widgets"], at_once=1)
    assert one["all"]["right"] == one["by_source"]["widgets"]["right"] == 1
    assert 0 < one["all"]["characters"] < 1
    assert f"of {one['all']['of']}, " in report_text(one)


def test_typical_times() -> None:
    assert typical([]) == {}
    assert typical([3.0]) == {"median": 3.0, "p95": 3.0, "longest": 3.0}
    assert typical([float(each) for each in range(100, 0, -1)]) == {"median": 51.0, "p95": 95.0, "longest": 100.0}
