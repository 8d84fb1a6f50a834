"""Published grounding benchmarks: known answers get the exact score, in every form of boxes, through the whole path."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holotron.agent.chat import Message, Reply
from holotron.agent.formats.localizers import LOCALIZERS
from holotron.agent.policy_format import find_format
from holotron.cli.main import app
from holotron.episodes.datasets.pictures import SourcePictures
from holotron.episodes.datasets.records import DatasetError
from holotron.eval.benchmark_files import BenchmarkSource, load_benchmark
from holotron.eval.benchmarks import BENCHMARKS
from holotron.eval.grounding_run import ANSWERS, GroundingRun, NanoLocalizer, localizer_of
from tests.agent.replies import SingleChat
from tests.agent.scripted_server import scripted_server
from tests.episodes import dataset_files as made


class Knowing(SingleChat):
    """A model that says what it was told to say about each element, and remembers what it was asked."""

    name = "knowing"

    def __init__(self, answers: Mapping[str, str]) -> None:
        self.answers, self.asked = answers, list[str]()

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        element = new[-1].text.rpartition("\n")[2].rpartition(": ")[2]
        self.asked.append(element)
        assert new[-1].image is not None
        return Reply(self.answers[element])


def prepared(folder: Path, name: str, form: str, out: Path, words: str = "json") -> GroundingRun:
    path = made.screenspot(folder, form)
    loaded = load_benchmark(BENCHMARKS[name], BenchmarkSource(path.parent), SourcePictures())
    run = GroundingRun(BENCHMARKS[name], loaded, localizer_of(find_format(words)), out, "knowing", 2)
    run.claim()
    return run


def finished(run: GroundingRun, model: Knowing) -> dict[str, Any]:
    asyncio.run(run.infer(model, SourcePictures()))
    return run.metric(run.judge())


@pytest.mark.parametrize(
    ("name", "form", "cells"),
    [
        ("screenspot", "hub", {"desktop-icon": (1, 2), "desktop-text": (1, 2)}),
        ("screenspot-v2", "v2", {"desktop-icon": (1, 2), "desktop-text": (1, 2)}),
        ("screenspot-pro", "pro", {"CAD-icon": (2, 4)}),
    ],
)
def test_known_answers_get_the_exact_score(tmp_path: Path, name: str, form: str, cells: dict[str, Any]) -> None:
    run = prepared(tmp_path / "data", name, form, tmp_path / "out")
    answers = {
        "element 0": '{"x":250,"y":150}',  # the corner of its box, which belongs to it
        "element 1": '{"x":916,"y":950}',  # one thousandth left of it
        "element 2": "I do not know",
        "element 3": 'It is here: {"x":500,"y":50}',
    }
    report = finished(run, Knowing(answers))
    assert (report["accuracy"], report["correct"], report["of"], report["wrong_format"]) == (0.5, 2, 4, 1)
    assert {cell: (part["correct"], part["of"]) for cell, part in report["by_cell"].items()} == cells
    assert report["mean"] == 0.5
    assert (report["items"], report["published_items"]) == (4, BENCHMARKS[name].size)
    assert (report["space"], report["boxes"]) == (
        "0..1" if form == "hub" else "pixels",
        "xywh" if form == "v2" else "xyxy",
    )


@pytest.mark.parametrize("size", [(640, 360), (1920, 1080), (3840, 2160)])
def test_points_are_as_exact_as_the_answer(size: tuple[int, int]) -> None:
    """A pixel of the size that the model sees is told from its neighbour, also where a thousandth is four of them."""
    rule = LOCALIZERS["ui-tars"].like.image_rule
    assert rule is not None
    width, height = rule.resized(size)
    for x, y in ((0, 0), (1, 1), (width // 3, height // 7), (width, height)):
        answer = f"Action: click(point='<point>{x} {y}</point>')"
        assert LOCALIZERS["ui-tars"].shares(answer, size) == (x / width, y / height)
    call = {"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [501, 333]}}
    assert LOCALIZERS["qwen-vl"].shares(f"<tool_call>\n{json.dumps(call)}\n</tool_call>", size) == (0.501, 0.333)
    assert LOCALIZERS["holo1"].shares("Click(3, 4)", (280, 280)) == (3 / 280, 4 / 280)
    assert NanoLocalizer().shares('{"x":12,"y":999}', size) == (0.012, 0.999)


def test_verdicts_are_those_of_the_published_rule(tmp_path: Path) -> None:
    run = prepared(tmp_path / "data", "screenspot-pro", "pro", tmp_path / "out")
    chance = random.Random(0)
    records = json.loads((tmp_path / "data" / "photoshop_linux.json").read_text())
    for _ in range(1000):
        number = chance.randrange(len(records))
        item, record = run.loaded.items[number], records[number]
        near = [chance.choice([each, each + 1, each - 1, chance.randrange(1000)]) for each in (0, 0)]
        box = [side / made.WIDTH if index % 2 == 0 else side / made.HEIGHT for index, side in enumerate(record["bbox"])]
        x = max(0, min(1000, round(1000 * chance.choice([box[0], box[2]])) + near[0]))
        y = max(0, min(1000, round(1000 * chance.choice([box[1], box[3]])) + near[1]))
        wanted = box[0] <= x / 1000 <= box[2] and box[1] <= y / 1000 <= box[3]
        found = run._verdict(item, {"text": json.dumps({"x": x, "y": y})})["verdict"]
        assert found == ("correct" if wanted else "wrong"), (record, x, y)


def test_nothing_that_was_answered_is_asked_again(tmp_path: Path) -> None:
    answers = {f"element {number}": '{"x":500,"y":50}' for number in range(4)}
    run = prepared(tmp_path / "data", "screenspot-v2", "v2", tmp_path / "out")
    first = finished(run, Knowing(answers))
    lines = (tmp_path / "out" / ANSWERS).read_bytes().splitlines(keepends=True)
    (tmp_path / "out" / ANSWERS).write_bytes(b"".join(lines[:2]) + lines[2][:-5])  # as a kill leaves it
    model = Knowing(answers)
    second = finished(prepared(tmp_path / "data", "screenspot-v2", "v2", tmp_path / "out"), model)
    assert len(model.asked) == 2
    assert (second["by_cell"], second["answered"]) == (first["by_cell"], 4)
    with pytest.raises(DatasetError, match="holds another run \\(localizer differ\\)"):
        prepared(tmp_path / "data", "screenspot-v2", "v2", tmp_path / "out", "holo2")


def test_what_is_missing_is_told_not_scored(tmp_path: Path) -> None:
    path = made.screenspot(tmp_path / "data", "v2")
    records = json.loads(path.read_text())
    records[2]["img_filename"] = "gone.png"
    path.write_text(json.dumps(records))
    settings = BenchmarkSource(path.parent)
    with pytest.raises(DatasetError, match=r"1 of 4 items cannot be asked, such as screenspot_desktop_v2.json\[2\]"):
        load_benchmark(BENCHMARKS["screenspot-v2"], settings, SourcePictures())


def test_the_command(tmp_path: Path) -> None:
    path, out = made.screenspot(tmp_path / "data", "v2"), tmp_path / "out"

    def holo(*words: object) -> Any:
        return CliRunner(env={"COLUMNS": "100"}).invoke(app, ["eval", "grounding", *map(str, words)])

    right = {"x": 167, "y": 117}
    with scripted_server(right, right, "no", right, policy_format={"format": "holo2", "size": None}) as server:
        asked = ("screenspot-v2", "--data", path.parent, "--endpoint", server.url, "--out", out, "--sessions", "1")
        result = holo(*asked, "--json")
        assert result.exit_code == 0, result.stderr
        report = json.loads(result.stdout)
        assert (report["accuracy"], report["wrong_format"], report["localizer"]) == (0.25, 1, "Holo2Localizer")
        assert len(server.requests) == 4
        [question] = server.requests[0]["messages"]
        assert [part["type"] for part in question["content"]] == ["image_url", "text"]
        result = holo(*asked)
        assert len(server.requests) == 4
    assert "4 items; 1272 were published: not the whole benchmark" in result.stdout
    page = (out / "misses.html").read_text()
    assert page.count('class="sample"') == 3
    assert holo("screenspot-v2").exit_code == 2
    assert "--data DIR" in holo("screenspot-v2").stderr
    assert "clone it and give --data OSWorld-G/benchmark" in holo("osworld-g", "--data", "hub").stderr
    assert "there is no benchmark 'screenspot-9'" in holo("screenspot-9", "--data", path.parent).stderr
