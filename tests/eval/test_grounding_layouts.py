"""Each grounding benchmark in its published layout: known answers get the exact score at every size of images."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import random
import zipfile
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from PIL import Image, ImageDraw
from typer.testing import CliRunner

from holotron.agent.endpoint import EndpointRefused
from holotron.agent.formats.localizers import LOCALIZERS, NotThere
from holotron.cli.eval_grounding import BENCHMARKS as OFFERED
from holotron.cli.main import app as cli
from holotron.episodes.datasets.importer import import_dataset
from holotron.episodes.datasets.pictures import SourcePictures
from holotron.episodes.datasets.records import DatasetError
from holotron.episodes.datasets.settings import ImportSettings
from holotron.eval.benchmark_files import BenchmarkSource, LoadedBenchmark, fetch_benchmark, load_benchmark
from holotron.eval.benchmarks import BENCHMARKS, PUBLISHED
from holotron.eval.grounding_run import GroundingRun, NanoLocalizer
from holotron.eval.targets import BoxTarget, PolygonTarget, RefusalTarget
from holotron.eval.zoom import crop_around
from tests.agent.scripted_server import scripted_server
from tests.eval.grounding_fixtures import LAYOUTS, REGION_LAYOUTS, Labelled, write_layout
from tests.eval.test_grounding_benchmarks import Knowing

SIZES = [(1040, 640), (1280, 720), (1600, 900)]
GRID = 40  # boxes lie on fortieths of the sides, which every size and the thousandths of answers have in common


@cache
def shot(size: tuple[int, int], shade: int) -> bytes:
    image = Image.new("RGB", size, (shade, 220, 240))
    ImageDraw.Draw(image).rectangle((10, 10, 200, 100), fill="white", outline="black")
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def labelled(size: tuple[int, int]) -> list[Labelled]:
    """Seven elements: six boxes and a polygon, and something that is not there."""

    def on(*sides: int) -> tuple[float, ...]:
        return tuple(side * size[index % 2] / GRID for index, side in enumerate(sides))

    boxes = [(30, 4, 38, 8), (20, 20, 26, 30), (2, 36, 10, 39), (36, 30, 39, 38), (10, 10, 14, 14), (24, 2, 28, 5)]
    platforms, kinds = ("web", "desktop", "mobile"), ("icon", "text")
    items = [
        Labelled(
            shot(size, 20 * (number % 2)),
            size,
            f"element {number}",
            on(*box),  # type: ignore[arg-type]
            platform=platforms[number % 3],
            kind=kinds[number // 3],
        )
        for number, box in enumerate(boxes)
    ]
    triangle = on(8, 8, 24, 8, 8, 24)
    return [
        *items,
        Labelled(items[0].png, size, "element 6", polygon=triangle),
        Labelled(items[1].png, size, "element 7"),
    ]


ANSWERS = {
    "element 0": '{"x":850,"y":150}',  # inside
    "element 1": '{"x":500,"y":750}',  # the corner of its box
    "element 2": '{"x":251,"y":950}',  # a thousandth right of it
    "element 3": "I do not know",
    "element 4": 'It is here: {"x":300,"y":300}',
    "element 5": '{"x":650,"y":50}',  # on its upper side
    "element 6": '{"x":300,"y":450}',  # in the triangle
    "element 7": '{"x":-1,"y":-1}',
}
EDGES = {"element 1", "element 5"}
RIGHT = {"element 0", "element 4", "element 6", *EDGES}


def loaded(name: str, folder: Path, **source: Any) -> LoadedBenchmark:
    return load_benchmark(BENCHMARKS[name], BenchmarkSource(folder, **source), SourcePictures())


def finished(name: str, found: LoadedBenchmark, out: Path, model: Any, **options: Any) -> dict[str, Any]:
    run = GroundingRun(BENCHMARKS[name], found, NanoLocalizer(), out, "knowing", 4, **options)
    run.claim()
    asyncio.run(run.infer(model, SourcePictures()))
    return run.metric(run.judge())


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", LAYOUTS)
def test_known_answers_get_the_exact_score(tmp_path: Path, name: str, size: tuple[int, int]) -> None:
    found = loaded(name, write_layout(name, tmp_path / "data", labelled(size)))
    asked = {item.instruction for item in found.items}
    assert asked == {f"element {number}" for number in range(7 if name.startswith("osworld-g") else 6)}
    assert {item.size for item in found.items} == {size}
    report = finished(name, found, tmp_path / "out", Knowing(ANSWERS))
    right = (RIGHT - EDGES if name == "groundui-1k" else RIGHT) & asked
    assert (report["correct"], report["of"], report["wrong_format"]) == (len(right), len(asked), 1)
    assert {each["id"].rpartition("#")[0] for each in report["results"] if each["right"]} == {
        item.id.rpartition("#")[0] for item in found.items if item.instruction in right
    }
    share = "0..1" if name in ("screenspot", "webclick") else "pixels"
    form = "xywh" if name.startswith(("screenspot-v2", "osworld")) else "xyxy"
    assert (report["space"], report["boxes"]) == (share, form)
    groups = {key: {name: (part["correct"], part["of"]) for name, part in report[key].items()} for key in GROUPS[name]}
    assert groups == GROUPS[name]


PLATFORM = {"web": (1, 2), "desktop": (2, 2), "mobile": (1, 2)}
GROUPS: dict[str, dict[str, dict[str, tuple[int, int]]]] = {
    "screenspot": {"by_group": PLATFORM, "by_kind": {"icon": (2, 3), "text": (2, 3)}},
    "screenspot-v2": {"by_group": PLATFORM, "by_kind": {"icon": (2, 3), "text": (2, 3)}},
    "screenspot-pro": {"by_cell": {"Office-icon": (2, 3), "Office-text": (2, 3)}, "by_application": {"word": (4, 6)}},
    "osworld-g": {
        "by_capability": {"text_matching": (5, 7), "layout_understanding": (2, 3)},
        "by_target": {"bbox": (4, 6), "polygon": (1, 1)},
    },
    "osworld-g-refined": {"by_target": {"bbox": (4, 6), "polygon": (1, 1)}},
    "groundui-1k": {"by_platform": {"web": (1, 2), "desktop": (1, 2), "mobile": (0, 2)}},
    "webclick": {"by_bucket": {"agentbrowse": (1, 2), "humanbrowse": (2, 2), "calendars": (1, 2)}},
    "showdown-clicks": {},
    "ui-vision": {"by_setting": {"basic": (1, 2), "functional": (2, 2), "spatial": (1, 2)}},
}


def test_every_benchmark_is_offered_and_every_published_score_has_a_source() -> None:
    assert set(OFFERED) == set(BENCHMARKS) == {*LAYOUTS, *REGION_LAYOUTS}
    rows = [row for row in csv.DictReader(PUBLISHED.open(encoding="utf-8")) if row["source"]]
    assert {row["benchmark"] for row in rows} <= set(BENCHMARKS)
    assert sum(len(each.published) for each in BENCHMARKS.values()) == len(rows)
    assert all(each.hub or each.elsewhere for each in BENCHMARKS.values())


def test_regions_are_answered_by_boxes_and_measured_as_published(tmp_path: Path) -> None:
    size, boxes = (2000, 500), [(200, 100, 600, 200), (0, 0, 1000, 500), (1200, 100, 1600, 300)]
    names = ["toolbar: drawing tools", "canvas: where one draws", "panel: layers"]
    items = [
        Labelled(shot(size, 0), size, name, tuple(map(float, box))) for name, box in zip(names, boxes, strict=True)
    ]
    folder = write_layout("ui-vision-layout", tmp_path / "data", items)
    said = {
        "toolbar": '{"x1":200,"y1":200,"x2":400,"y2":400}',  # the right half, and as much beside it
        "canvas": 'It is {"x1":0,"y1":0,"x2":500,"y2":1000}',
        "panel": '{"x1":800,"y1":600,"x2":600,"y2":200}',  # its sides are swapped, which is no box
    }

    def reply(request: dict[str, Any]) -> str:
        text = str(request["messages"])
        assert "Region: " in text
        return next(answer for name, answer in said.items() if f"Region: {name}: " in text)

    words = ["eval", "grounding", "ui-vision-layout", "--data", str(folder), "--out", str(tmp_path / "out")]
    with scripted_server(reply, policy_format={"format": "json"}) as server:
        result = CliRunner().invoke(cli, [*words, "--endpoint", server.url, "--json"])
        assert result.exit_code == 0, result.stderr
        report = json.loads(result.stdout)
        shown = CliRunner().invoke(cli, [*words, "--endpoint", server.url])
        assert len(server.requests) == 3
    assert "mean IoU 44.4%" in " ".join(shown.stdout.split())
    assert "were published" not in shown.stdout
    assert (report["correct"], report["of"], report["wrong_format"]) == (1, 3, 0)
    third = pytest.approx((1 / 3 + 1 + 0) / 3)
    half = pytest.approx((1 / 2 + 1 + 0) / 3)
    assert (report["mean_iou"], report["mean_precision"], report["mean_recall"]) == (third, half, half)
    assert CliRunner().invoke(cli, [*words, "--endpoint", server.url, "--zoom", "0.5"]).exit_code == 2


def test_refusals_are_asked_where_one_wants_them(tmp_path: Path) -> None:
    folder = write_layout("osworld-g", tmp_path / "data", labelled(SIZES[0]))
    assert loaded("osworld-g", folder).refusals == 1
    found = loaded("osworld-g", folder, refusals=True)
    report = finished("osworld-g", found, tmp_path / "out", Knowing(ANSWERS), refusals=True)
    assert (report["correct"], report["of"], report["refusals"], report["published_items"]) == (6, 8, 1, 564)
    assert report["by_target"]["refusal"]["correct"] == 1
    # An element that is there is not found by saying that it is not.
    denied = dict.fromkeys(ANSWERS, '{"x":-1,"y":-1}')
    report = finished("osworld-g", found, tmp_path / "denied", Knowing(denied), refusals=True)
    assert (report["correct"], report["wrong_format"]) == (1, 0)


def test_refusals_in_the_words_of_each_family() -> None:
    call = {"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [-1, -1]}}
    assert LOCALIZERS["qwen-vl"].shares(f"<tool_call>\n{json.dumps(call)}\n</tool_call>", (640, 360)) == (
        -0.001,
        -0.001,
    )
    for name, text in (("holo1", "Click(-1, -1)"), ("holo2", '{"x":-1,"y":-1}'), ("ui-tars", "(-1,-1)")):
        with pytest.raises(NotThere):
            LOCALIZERS[name].shares(text, (640, 360))


# ---- the rules as their descriptions say them, in whole numbers and fractions ----


def in_polygon(x: Fraction, y: Fraction, corners: list[tuple[int, int]]) -> bool:
    """Sides that a ray to the right crosses, each side with its lower end and without its upper one."""
    crossed = 0
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        low, high = sorted((ay, by))
        if low <= y < high:
            crossed += x < ax + Fraction(y - ay) * (bx - ax) / (by - ay)
    return crossed % 2 == 1


def test_a_thousand_random_answers_are_judged_by_the_published_rules() -> None:
    chance = random.Random(0)
    size = 1200, 600
    for _ in range(1000):
        left, right = sorted(chance.sample(range(0, 1200, 30), 2))
        top, bottom = sorted(chance.sample(range(0, 600, 15), 2))
        # Often on an edge, or a thousandth beside it.
        x = chance.choice([left, right, chance.randrange(1200)]) * 1000 // 1200 + chance.choice([-1, 0, 0, 1])
        y = chance.choice([top, bottom, chance.randrange(600)]) * 1000 // 600 + chance.choice([-1, 0, 0, 1])
        point, exact = (x / 1000, y / 1000), (Fraction(x, 1000) * 1200, Fraction(y, 1000) * 600)
        box = left / size[0], top / size[1], right / size[0], bottom / size[1]
        assert BoxTarget(box).met(point) == (left <= exact[0] <= right and top <= exact[1] <= bottom)
        assert BoxTarget(box, edges=False).met(point) == (left < exact[0] < right and top < exact[1] < bottom)
        corners = [(chance.randrange(1200), chance.randrange(600)) for _ in range(chance.randrange(3, 9))]
        polygon = PolygonTarget(tuple((a / size[0], b / size[1]) for a, b in corners))
        assert polygon.met(point) == in_polygon(*exact, corners), (corners, exact)
        assert RefusalTarget().met(point) == (x < 0 and y < 0)


# ---- data that is not as it should be ----


@pytest.mark.parametrize("mode", ["P", "RGBA", "L", "CMYK", "I;16", "1"])
def test_images_of_any_mode_show_the_same(tmp_path: Path, mode: str) -> None:
    """A grey screen with a black half: what a model is shown is the same in every mode."""
    grey = Image.new("L", (64, 48), 128)
    grey.paste(0, (0, 0, 32, 48))
    if mode == "I;16":
        image = Image.new("I;16", grey.size)
        image.putdata([value * 257 for value in grey.tobytes()])
    else:
        image = grey.quantize() if mode == "P" else grey.convert("RGB").convert(mode)
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    image.save(path)
    with Image.open(io.BytesIO(SourcePictures().read(tmp_path, path.name).png)) as read:
        shown = read.convert("RGB")
    assert shown.size == (64, 48)
    assert shown.getpixel((10, 10)) == (0, 0, 0)
    assert mode == "1" or all(abs(value - 128) <= 1 for value in shown.getpixel((50, 10)))  # type: ignore[union-attr]


def test_what_is_not_certain_or_not_there_is_told(tmp_path: Path) -> None:
    folder = write_layout("groundui-1k", tmp_path / "data", labelled(SIZES[0]))
    path = folder / "metadata_1k.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    record = json.loads(lines[0])

    def written(*records: dict[str, Any]) -> None:
        path.write_text("".join(json.dumps(each) + "\n" for each in records))

    written({**record, "bbox": [100, 100, 200, 150]})
    with pytest.raises(DatasetError, match=r"could be pixels as xywh or .* say --space and --boxes"):
        loaded("groundui-1k", folder)
    assert loaded("groundui-1k", folder, boxes="xyxy", space="pixels").items[0].target.box[0] == 100 / 1040  # type: ignore[union-attr]
    written(record, {**record, "image": "gone.png"}, {**record, "bbox": [1, 2]})
    with pytest.raises(DatasetError, match=r"2 of 3 items cannot be asked, such as .*\.jsonl:"):
        loaded("groundui-1k", folder, boxes="xyxy", space="pixels")
    found = loaded("groundui-1k", folder, boxes="xyxy", space="pixels", most_bad=0.7)
    assert (len(found.items), len(found.left_out)) == (1, 2)
    with pytest.raises(DatasetError, match=r"has no file OSWorld-G\.json"):
        loaded("osworld-g", folder)
    path.write_text("".join([*lines, lines[0]]))
    found = loaded("groundui-1k", folder)
    assert (len({item.id for item in found.items}), found.duplicates) == (7, 1)
    (folder / "copy").mkdir()
    (folder / "copy" / path.name).write_text("".join(lines))
    with pytest.raises(DatasetError, match="repeats items of"):
        loaded("groundui-1k", folder)


def test_tables_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    folder = write_layout("showdown-clicks", tmp_path / "clicks", labelled(SIZES[0]))
    path = folder / "showdown-clicks-dev" / "data.csv"
    path.write_text(path.read_text() + "c9,R,frames/R/x.webp,click,1,2\n")
    with pytest.raises(DatasetError, match=r"1 of 7 .*data.csv:8: the row has more or fewer cells than the head"):
        loaded("showdown-clicks", folder)
    folder = write_layout("webclick", tmp_path / "web", labelled(SIZES[0]))
    [path] = folder.rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DatasetError, match=r"is no Parquet file that can be read"):
        loaded("webclick", folder)


@pytest.mark.parametrize(("name", "episodes", "unsupported"), [("webclick", 6, 0), ("osworld-g", 6, 2)])
def test_they_can_be_learned_from_too(tmp_path: Path, name: str, episodes: int, unsupported: int) -> None:
    """`data import screenspot` reads the same files; a click needs a box."""
    folder = write_layout(name, tmp_path / "data", labelled(SIZES[0]))
    source = folder / "OSWorld-G.json" if name == "osworld-g" else folder
    report = import_dataset(ImportSettings("screenspot", source), tmp_path / "store")
    assert (report.episodes, report.unsupported.total()) == (episodes, unsupported)


def test_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetched(hub_id: str, *, repo_type: str, local_dir: Path) -> str:
        asked.append((hub_id, repo_type))
        write_layout("screenspot-v2", local_dir, labelled(SIZES[0]))
        images = local_dir / "screenspotv2_image"
        with zipfile.ZipFile(local_dir / "screenspotv2_image.zip", "w") as archive:
            for path in images.iterdir():
                archive.write(path, f"screenspotv2_image/{path.name}")
                path.unlink()
        images.rmdir()
        return str(local_dir)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetched)
    folder = fetch_benchmark(BENCHMARKS["screenspot-v2"], tmp_path / "hub")
    assert asked == [("OS-Copilot/ScreenSpot-v2", "dataset")]
    assert len(loaded("screenspot-v2", folder).items) == 6

    def offline(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(DatasetError, match=r"Hcompany/WebClick could not be fetched .* give its folder with --data"):
        fetch_benchmark(BENCHMARKS["webclick"], tmp_path / "other")
    with pytest.raises(DatasetError, match=r"osworld-g is not fetched: .* clone it"):
        fetch_benchmark(BENCHMARKS["osworld-g"], tmp_path / "other")


# ---- runs ----


class Seeing(Knowing):
    """Points at the first answer in the whole picture and at the middle of whatever part it is shown."""

    async def say(self, new: Any, schema: Any = None) -> Any:
        said = await super().say(new, schema)
        with Image.open(io.BytesIO(new[-1].image)) as image:
            whole = image.convert("RGB").getpixel((1, 1)) in [(20 * shade, 220, 240) for shade in range(3)]
        again = self.asked.count(self.asked[-1]) > 1
        assert again or whole
        return type(said)(said.text if not again else '{"x":500,"y":500}')


def test_a_second_look_counts_on_the_whole_picture(tmp_path: Path) -> None:
    folder = write_layout("screenspot-pro", tmp_path / "data", labelled(SIZES[0]))
    model = Seeing(ANSWERS)
    report = finished("screenspot-pro", loaded("screenspot-pro", folder), tmp_path / "out", model, zoom=0.25)
    assert len(model.asked) == 6 + 5  # one had no point to look at again
    # The middle of the part is where the first answer was, but for parts that end at the picture's edge.
    lines = [json.loads(line) for line in (tmp_path / "out" / "verdicts.jsonl").read_text().splitlines()]
    points = {line["id"].rpartition("_")[2]: line["point"] for line in lines}
    assert points["0"] == pytest.approx((0.85, 0.15), abs=0.002)
    assert points["2"] == pytest.approx((0.251, 0.875), abs=0.002)
    assert points["3"] is None
    assert (report["zoom"], report["wrong_format"]) == (0.25, 1)
    assert crop_around((0.0, 1.0), (100, 80), 0.5) == (0, 40, 50, 80)


def test_an_item_that_the_server_refuses_stops_no_other(tmp_path: Path) -> None:
    class Picky(Knowing):
        refuses = True

        async def say(self, new: Any, schema: Any = None) -> Any:
            if self.refuses and new[-1].text.endswith("element 4"):
                raise EndpointRefused(400, "the image is too large")
            return await super().say(new, schema)

    folder = write_layout("showdown-clicks", tmp_path / "data", labelled(SIZES[0]))
    found, model = loaded("showdown-clicks", folder), Picky(ANSWERS)
    run = GroundingRun(BENCHMARKS["showdown-clicks"], found, NanoLocalizer(), tmp_path / "out", "picky", 2)
    run.claim()
    [problem] = asyncio.run(run.infer(model, SourcePictures()))
    assert "the image is too large" in problem
    report = run.metric(run.judge())
    assert (report["correct"], report["answered"], report["of"]) == (3, 5, 6)
    model.refuses = False
    assert asyncio.run(run.infer(model, SourcePictures())) == []
    assert run.metric(run.judge())["correct"] == 4
    assert model.asked.count("element 4") == 1
    assert len(model.asked) == 6
