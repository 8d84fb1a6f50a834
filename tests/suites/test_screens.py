"""Screens with questions: what is found on a page, how it is asked about, what ends up in shards."""

from __future__ import annotations

import asyncio
import io
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotron.actions.coordinates import Space
from holotron.episodes.shards import read_shard, shard_paths
from holotron.episodes.worker_pool import Share
from holotron.suites.libraries.manifest import VARIABLE, all_libraries
from holotron.suites.screens import generate as generate_module
from holotron.suites.screens.describe import Describer
from holotron.suites.screens.generate import GroundError, GroundSettings, generate, source_of
from holotron.suites.screens.labels import ScreenElement
from holotron.suites.screens.pages import make_page
from holotron.suites.screens.questions import MOST_ON_LARGE, ask, describe_state, pairs
from holotron.suites.screens.rendering import Document, Renderer, RenderingError, Shot
from holotron.suites.screens.sources import SOURCES, Sources
from holotron.suites.screens.templates import HELD_OUT, TEMPLATES
from holotron.suites.screens.themes import HELD_OUT_PALETTES
from holotron.suites.screens.widgets import make_widgets

POINT = re.compile(r'\{"x":(\d+),"y":(\d+)\}')
PAGE = """<!DOCTYPE html><style>
  body { margin: 0; width: 600px; height: 400px; overflow: hidden; font: 14px 'Liberation Sans' }
  button { height: 24px }
  div { position: absolute }
</style>
<div style="left:10px;top:10px"><button>Save</button></div>
<div style="left:10px;top:60px"><button>Open</button> <button>Open</button></div>
<div style="left:10px;top:110px"><label><input type="checkbox" checked>Blue</label></div>
<div style="left:10px;top:160px"><label for="mail">Email:</label> <input id="mail" value="abc"></div>
<div style="left:10px;top:210px"><button style="display:none">Hidden</button></div>
<div style="left:90px;top:210px"><button style="opacity:0">Clear</button></div>
<div style="left:200px;top:210px"><button>Covered</button></div>
<div style="left:190px;top:200px;width:120px;height:50px;background:#ccc"></div>
<div style="left:10px;top:250px">
  <button style="width:6px;height:6px;padding:0;border:0" aria-label="tiny"></button></div>
<div style="left:300px;top:10px;width:40px;overflow:hidden;white-space:nowrap">a text that is cut off</div>
<div style="left:300px;top:60px;color:#fefefe">a text that nobody can read</div>
<div style="left:500px;top:390px"><button>Below</button></div>
<div style="left:300px;top:110px"><button aria-label="search"><svg width="16" height="16"></svg></button></div>
"""


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shot]:
    """One page written by hand and one of each source, drawn once for all tests."""
    folder = tmp_path_factory.mktemp("packages")
    for number in range(20):
        (folder / f"page{number}.html").write_text(PAGE)

    async def draw() -> dict[str, Shot]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, str(Path(__file__).with_name("ui_libraries")))
            all_libraries.cache_clear()
            found = await drawn_shots()
        all_libraries.cache_clear()
        return found

    async def drawn_shots() -> dict[str, Shot]:
        async with Sources(folders=(folder,)) as sources:
            drawn = {"hand": await sources.renderer.draw(Document(PAGE, 600, 400))}
            for source in SOURCES:
                shot = await sources.shot(source, 7)
                assert shot is not None
                drawn[source] = shot
            return drawn | {"again": await sources.renderer.draw(make_page(7))}

    return asyncio.run(draw())


def named(elements: Sequence[ScreenElement], name: str) -> list[ScreenElement]:
    return [each for each in elements if each.usable and each.name == name]


def test_a_seed_gives_the_same_screen_and_the_same_questions(shots: dict[str, Shot]) -> None:
    first, again = shots["pages"], shots["again"]
    assert first.png == again.png
    assert first.elements == again.elements
    asked = [ask(shot, "ground/pages", random.Random(3)) for shot in (first, again)]
    assert asked[0] is not None
    assert asked[1] is not None
    assert [(turn.said, turn.answer) for turn in asked[0].turns] == [
        (turn.said, turn.answer) for turn in asked[1].turns
    ]


def test_what_can_be_seen_is_labelled_and_nothing_else(shots: dict[str, Shot]) -> None:
    elements = shots["hand"].elements
    (save,) = named(elements, "Save")
    assert (save.kind, save.box[:2], save.text) == ("button", (10, 10), "Save")
    blue = next(each for each in elements if each.kind == "check box")
    assert describe_state(blue) == 'check box "Blue", checked'
    email = next(each for each in elements if each.kind == "text field")
    assert describe_state(email) == 'text field "Email", "abc"'
    assert named(elements, "search")[0].kind == "icon"
    for gone in (
        "Hidden",
        "Clear",
        "Covered",
        "tiny",
        "Below",
        "a text that is cut off",
        "a text that nobody can read",
    ):
        assert not named(elements, gone), gone


def test_each_character_that_can_be_read_has_its_place(shots: dict[str, Shot]) -> None:
    shot = shots["hand"]
    words = {text: (row, columns) for text, row, columns in shot.writing.words}
    assert {"Save", "Blue", "Email:"} <= words.keys()
    assert not words.keys() & {"Hidden", "Clear", "Covered", "cut", "off", "nobody", "abc"}
    row, columns = words["Email:"]
    assert 160 <= row <= 185
    assert list(columns) == sorted(columns)
    grey = np.asarray(Image.open(io.BytesIO(shot.png)).convert("L")).astype(int)
    for column in columns:  # there is ink in each
        assert grey[row - 8 : row + 8, column - 3 : column + 4].min() < 128
    field, covered = (58, 160, 120, 175), (205, 215, 250, 225)
    for left, top, right, bottom in (field, covered):
        x, y = (left + right) / 2, (top + bottom) / 2
        assert any(box[0] <= x <= box[2] and box[1] <= y <= box[3] for box in shot.writing.unread), (x, y)


def test_one_of_several_alike_is_told_apart(shots: dict[str, Shot]) -> None:
    describer = Describer(shots["hand"].elements)
    first, second = named(shots["hand"].elements, "Open")
    ways = [set(describer.descriptions(each)) for each in (first, second)]
    assert 'the first "Open" button' in ways[0]
    assert 'the second "Open" button' in ways[1]
    assert not ways[0] & ways[1]
    assert not any(way in ("Open", 'the "Open" button') for way in ways[0] | ways[1])


@pytest.mark.parametrize("source", ["hand", *SOURCES])
def test_questions_point_at_what_they_ask_about(shots: dict[str, Shot], source: str) -> None:
    shot = shots[source]
    for each in shot.elements:
        left, top, right, bottom = each.box
        assert all(left - 1 <= x <= right and top - 1 <= y <= bottom for x, y in each.spots)
    describer = Describer(shot.elements)
    counts = set()
    for seed in range(20):
        sample = ask(shot, f"ground/{source}", random.Random(seed))
        assert sample is not None
        (turn,) = sample.turns
        assert turn.image == shot.png
        asked = pairs(turn)
        counts.add(len(asked))
        assert len(asked) <= MOST_ON_LARGE + 1
        for said, answer in asked:
            _check_turn(shot, describer, said, answer)
    assert 1 in counts
    assert max(counts) > 2


@pytest.mark.parametrize("source", ["hand", *SOURCES])
def test_no_answer_follows_from_another(shots: dict[str, Shot], source: str) -> None:
    shot = shots[source]
    order = {"Find": 0, "Read": 1, "What": 1, "Screen": 2}
    several = 0
    for seed in range(30):
        sample = ask(shot, f"ground/{source}", random.Random(seed))
        assert sample is not None
        asked = pairs(sample.turns[0])
        forms = [said.partition(":")[0] for said, _ in asked]
        assert forms == sorted(forms, key=order.__getitem__), "points first, then texts, then everything"
        points = [
            POINT.search(answer if form == "Find" else said)
            for form, (said, answer) in zip(forms, asked, strict=True)
            if form != "Screen"
        ]
        boxes = []
        for point in points:
            assert point is not None
            x, y = Space("pixels", shot.width, shot.height).from_relative(int(point[1]), int(point[2]))
            boxes.append(
                [
                    each.box
                    for each in shot.elements
                    if each.usable and each.box[0] - 1 <= x <= each.box[2] and each.box[1] - 1 <= y <= each.box[3]
                ]
            )
        several += len(points) > 1
        # However elements are nested, no two questions are about exactly the same ones.
        assert len({tuple(sorted(found)) for found in boxes}) == len(boxes)
    assert several


def _check_turn(shot: Shot, describer: Describer, said: str, answer: str) -> None:
    form, _, rest = said.partition(":")
    if form == "Find":
        (point,) = POINT.findall(answer)
        meant = [each for each in shot.elements if each.usable and rest.strip() in describer.descriptions(each)]
        assert len(meant) == 1, said
        left, top, right, bottom = meant[0].box
        x, y = Space("pixels", shot.width, shot.height).from_relative(int(point[0]), int(point[1]))
        assert left - 1 <= x <= right
        assert top - 1 <= y <= bottom
    elif form == "Screen":
        assert len(answer.encode()) <= 600
        assert all(POINT.search(line) for line in answer.splitlines())
    else:
        assert form in ("Read", "What")
        assert POINT.fullmatch(rest.strip())
        assert 0 < len(answer) <= 120
        assert form == "What" or len(answer) <= 60


def test_held_out_looks_are_never_trained_on() -> None:
    for seed in range(100):
        about = make_page(seed).about
        assert about["template"] in TEMPLATES
        assert about["theme"] not in HELD_OUT_PALETTES
        other = make_page(seed, held_out=True).about
        assert other["template"] in HELD_OUT or other["theme"] in HELD_OUT_PALETTES
    assert not TEMPLATES.keys() & HELD_OUT.keys()


async def test_a_sheet_shows_what_single_pages_show() -> None:
    documents = [make_widgets(seed) for seed in range(9)]
    async with Renderer() as renderer:
        together, alone = (
            await renderer.draw_sheet(documents),
            [await renderer.draw(document) for document in documents],
        )
    for one, other in zip(together, alone, strict=True):
        assert one.elements == other.elements
        assert one.writing == other.writing
        assert (one.width, one.height, one.about) == (other.width, other.height, other.about)
        a, b = (np.asarray(Image.open(io.BytesIO(shot.png)).convert("RGB")).astype(int) for shot in (one, other))
        # Edges of rounded corners may fall on other fractions of a pixel.
        assert (np.abs(a - b).max(axis=2) > 40).mean() < 0.002


def test_a_screen_that_a_browser_failed_to_draw_is_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    class Faltering:
        failures = 2

        async def draw(self, document: Document) -> Shot:
            if self.failures:
                self.failures -= 1
                raise RenderingError("the tab is gone")
            return Shot(b"", document.width, document.height, (), document.about)

    sources = Sources()
    sources.renderer = Faltering()  # type: ignore[assignment]
    assert asyncio.run(sources.shot("widgets", 3)) is not None
    assert capsys.readouterr().err.count("widgets 3") == 2
    Faltering.failures = 9
    sources.renderer = Faltering()  # type: ignore[assignment]
    assert asyncio.run(sources.shot("pages", 3)) is None
    assert "the tab is gone" in capsys.readouterr().err


def test_shards_are_written_and_a_second_run_goes_on_where_the_first_was(tmp_path: Path) -> None:
    mix = {"widgets": 1.0}
    assert generate(GroundSettings(tmp_path, samples=4, mix=mix)) == 4
    assert generate(GroundSettings(tmp_path, samples=6, mix=mix)) == 2
    read = [sample for path in shard_paths([tmp_path]) for sample in read_shard(path)]
    assert [sample.about["seed"] for sample in read] == list(range(6))
    assert {sample.kind for sample in read} == {"ground/widgets"}


def test_stopped_in_the_middle_it_keeps_what_is_made_and_goes_on(tmp_path: Path) -> None:
    settings = GroundSettings(tmp_path, samples=4, mix={"widgets": 1.0})
    reports = []

    def report(value: object) -> None:
        reports.append(value)
        if len(reports) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(generate_module._work(settings, Share([0], report=report)))
    assert generate(settings) == 2
    read = [sample.about["seed"] for path in shard_paths([tmp_path]) for sample in read_shard(path)]
    assert read == [0, 1, 2, 3]


def test_two_workers_share_the_seeds_out(tmp_path: Path) -> None:
    assert generate(GroundSettings(tmp_path, samples=4, workers=2, mix={"widgets": 1.0})) == 4
    first, second = ([sample.about["seed"] for sample in read_shard(path)] for path in shard_paths([tmp_path]))
    assert (first, second) == ([0, 2], [1, 3])


def test_a_screen_can_be_asked_about_several_times(tmp_path: Path) -> None:
    assert generate(GroundSettings(tmp_path, samples=2, mix={"widgets": 1.0}, asks=3)) == 6
    read = [sample for path in shard_paths([tmp_path]) for sample in read_shard(path)]
    assert [sample.about["seed"] for sample in read] == [0, 0, 0, 1, 1, 1]
    assert len({sample.turns[0].image for sample in read}) == 2
    assert len({sample.turns[0].said for sample in read}) == 6
    assert ["writing" in sample.about for sample in read] == [True, False, False] * 2


def test_settings_that_cannot_be_met_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GroundError, match="there is no source pictures"):
        GroundSettings(tmp_path, mix={"pictures": 1})
    with pytest.raises(GroundError, match="seeds must lie"):
        GroundSettings(tmp_path, seed=10**9)
    assert {source_of(seed, {"pages": 1, "widgets": 0}) for seed in range(20)} == {"pages"}
