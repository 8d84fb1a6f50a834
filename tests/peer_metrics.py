"""Published metric code beside ours, on the same random answers: `python -m tests.peer_metrics CHECKOUT…`.

CHECKOUT is a clone of a benchmark's repository, or a folder with its metric file in place, then written
CHECKOUT@COMMIT. Their file is run as it is, on items in the published layout that are made here; packages that it
imports for models are stood in for. Nothing is fetched. Exit code 1 where a verdict or a figure differs.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import hashlib
import importlib.util
import io
import json
import os
import platform
import random
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from PIL import Image

from holotron.agent.chat import Message, Reply
from holotron.agent.formats.localizers import LOCALIZERS
from holotron.episodes.datasets.pictures import SourcePictures
from holotron.eval.benchmark_files import BenchmarkSource, load_benchmark
from holotron.eval.benchmarks import BENCHMARKS
from holotron.eval.grounding_run import GroundingRun
from holotron.eval.regions import RegionRun
from tests.agent.replies import SingleChat
from tests.eval.grounding_fixtures import Box, Labelled, write_layout

ANSWERS, SEED = 1000, 0
SIZES = ((2000, 1000), (1000, 500), (1920, 1080), (1366, 768), (777, 1013))  # thousandths of the first hit edges
REAL = {*sys.stdlib_module_names, "numpy", "PIL", "tqdm"}  # what is imported for them as it is
Answer = tuple[float, float] | None  # in thousandths; None: words without a point
Answers = Mapping[str, Answer]  # by instruction
Verdicts = dict[str, str]


def items_and_answers(count: int, refusals: bool) -> tuple[list[Labelled], dict[str, Answer]]:
    """Boxes, with refusals also polygons and what is not there; points in, out, on edges and on corners."""
    chance, items, answers = random.Random(SEED), list[Labelled](), dict[str, Answer]()
    pictures = {size: _picture(size) for size in SIZES}
    for number in range(count):
        size, said = chance.choice(SIZES), f"element {number}"
        box = _box(chance, size)
        kind, place = chance.choice(("text", "icon")), chance.choice(("web", "desktop", "mobile"))
        form = chance.choice(("box", "box", "polygon", "nothing")) if refusals else "box"
        left, top, right, bottom = box
        outline = (left, top, right, top, (left + right) / 2, (top + bottom) / 2, right, bottom, left, bottom)
        items.append(
            Labelled(
                pictures[size],
                size,
                said,
                box if form == "box" else None,
                outline if form == "polygon" else (),
                kind,
                place,
            )
        )
        answers[said] = _answer(chance, box, size, refusals)
    return items, answers


def _picture(size: tuple[int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, "white").save(buffer, "PNG")
    return buffer.getvalue()


def _box(chance: random.Random, size: tuple[int, int]) -> Box:
    """In whole pixels, as most are published."""
    (left, right), (top, bottom) = (
        (start := chance.randrange(0, side * 3 // 4), start + chance.randrange(5, side // 5)) for side in size
    )
    return left, top, right, bottom


def _answer(chance: random.Random, box: Box, size: tuple[int, int], refusals: bool) -> Answer:
    draw = chance.random()
    if draw < 0.05:
        return None
    if refusals and draw < 0.2:
        return -1, -1
    point = []
    for axis, side in enumerate(size):
        low, high = (1000 * box[axis + end] / side for end in (0, 2))
        edge = round(chance.choice((low, high)))
        at = chance.choice((edge, edge + chance.choice((-1, 1)), chance.uniform(low, high), chance.randrange(1001)))
        point.append(min(1000, max(0, at)))
    return point[0], point[1]


# ---- ours ----


class Scripted(SingleChat):
    """A model that gives the answers."""

    name = "scripted"

    def __init__(self, answers: Answers, boxes: Mapping[str, dict[str, int] | None] | None = None) -> None:
        self.answers, self.boxes = answers, boxes

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        said = "element " + new[-1].text.rpartition("element ")[2].strip().strip('".')
        if self.boxes is not None:
            return Reply(json.dumps(self.boxes[said]))
        point = self.answers[said]
        return Reply("it is over there" if point is None else json.dumps({"x": point[0], "y": point[1]}))


def ours(benchmark: str, folder: Path, answers: Answers, refusals: bool) -> tuple[Verdicts, dict[str, Any]]:
    """The verdicts and the report of the whole path, from the published layout on."""
    loaded = load_benchmark(BENCHMARKS[benchmark], BenchmarkSource(folder, refusals=refusals), SourcePictures())
    out = folder.parent / "out"
    run = GroundingRun(BENCHMARKS[benchmark], loaded, LOCALIZERS["json"], out, "scripted", refusals=refusals)
    run.claim()
    asyncio.run(run.infer(Scripted(answers), SourcePictures()))
    verdicts = run.judge()
    said = {item.id: item.instruction for item in loaded.items}
    return {said[each["id"]]: each["verdict"] for each in verdicts}, run.metric(verdicts)


# ---- theirs ----


@contextmanager
def _standing_in(file: Path) -> Iterator[None]:
    """Their imports: the standard library, a few packages and files beside theirs are real, the rest stands for it."""
    beside = {path.stem for path in file.parent.glob("*_utils.py")}
    imported = set[str]()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            parts = name.split(".")
            if parts[0] not in REAL | beside:
                imported |= {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    stand_ins = {name: mock.MagicMock() for name in imported}
    quiet = io.StringIO()  # some of them print every point
    beside_it = mock.patch.object(sys, "path", [str(file.parent), *sys.path])
    with mock.patch.dict(sys.modules, stand_ins), beside_it, redirect_stdout(quiet), redirect_stderr(quiet):
        yield


def _module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"peer_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _standing_in(file):
        spec.loader.exec_module(module)
    return module


def _share(point: Answer) -> list[float] | None:
    return None if point is None else [point[0] / 1000, point[1] / 1000]


def _grounder(answers: Answers) -> Any:
    """A model as the scripts of ScreenSpot-Pro and UI-Vision ask it."""
    return SimpleNamespace(
        ground_only_positive=lambda instruction, image: {"point": _share(answers[instruction]), "raw_response": ""}
    )


def screenspot_pro(file: Path, folder: Path, answers: Answers) -> tuple[Verdicts, Any]:
    module, log = _module(file), folder.parent / "theirs" / "log.json"
    module.build_model = lambda _: _grounder(answers)  # type: ignore[attr-defined]
    arguments = SimpleNamespace(
        task="all",
        inst_style="instruction",
        language="en",
        gt_type="positive",
        screenspot_test=str(folder / "annotations"),
        screenspot_imgs=str(folder / "images"),
        log_path=str(log),
    )
    with _standing_in(file):
        module.main(arguments)
    found = json.loads(log.read_text())
    overall = found["metrics"]["overall"]
    figures = {"accuracy": overall["action_acc"], "text": overall["text_acc"], "icon": overall["icon_acc"]}
    return {row["prompt_to_evaluate"]: row["correctness"] for row in found["details"]}, figures


def ui_vision(file: Path, folder: Path, answers: Answers) -> tuple[Verdicts, Any]:
    module, rows, means = _module(file), list[Any](), list[float]()
    for path in sorted(folder.glob("annotations/element_grounding/*.json")):
        arguments = SimpleNamespace(uivision_test_file=str(path), uivision_imgs=str(folder / "images"))
        with _standing_in(file):
            found = module.process_element_eval(arguments, _grounder(answers))
        rows += found["details"]
        means.append(found["metrics"]["overall_simple"]["action_acc"])
    right = sum(row["correctness"] == "correct" for row in rows)
    figures = {"accuracy": right / len(rows), "mean": sum(means) / len(means)}
    return {row["prompt_to_evaluate"]: row["correctness"] for row in rows}, figures


def osworld_g(file: Path, folder: Path, answers: Answers) -> tuple[Verdicts, Any]:
    judge = _module(file).GroundingEval("")
    verdicts = {}
    for record in json.loads((folder / "OSWorld-G.json").read_text()):
        point, box = answers[record["instruction"]], record["box_coordinates"]
        at = _share(point) if point != (-1, -1) else [-1, -1]
        met = at is not None and judge._eval([*at, *at], record["box_type"], box[2:4], box, record["image_size"])
        verdicts[record["instruction"]] = "correct" if met else "wrong"
    return verdicts, {}


def groundui(file: Path, folder: Path, answers: Answers) -> tuple[Verdicts, Any]:
    module, verdicts = _module(file), {}
    for line in (folder / "metadata_1k.jsonl").read_text().splitlines():
        row = json.loads(line)
        score, _point = module.eval_coord_output(_share(answers[row["instruction"]]), row["bbox"], row["resolution"])
        verdicts[row["instruction"]] = "correct" if score else "wrong"
    return verdicts, {}


def seeclick(file: Path, folder: Path, answers: Answers) -> tuple[Verdicts, Any]:
    """A script without functions: it is run whole, with a model that answers in its words."""
    for path in folder.glob("screenspot_*_v2.json"):
        path.with_name(path.name.replace("_v2", "")).write_bytes(path.read_bytes())

    def chat(_: Any, query: str, history: Any) -> tuple[str, None]:
        point = _share(answers[query.split('"')[1]])
        return ("it is over there" if point is None else f"({point[0]!r},{point[1]!r})"), None

    words = ["--qwen_path", "-", "--lora_path", "Qwen-VL-Chat", "--task", "all"]
    words += ["--screenspot_imgs", str(folder / "screenspotv2_image"), "--screenspot_test", str(folder)]
    with _standing_in(file), mock.patch.object(sys, "argv", [file.name, *words]):
        kinds: Any = sys.modules["transformers"]
        kinds.AutoTokenizer.from_pretrained.return_value.from_list_format.side_effect = lambda parts: parts[1]["text"]
        kinds.AutoModelForCausalLM.from_pretrained.return_value.eval.return_value.chat.side_effect = chat
        found = runpy.run_path(str(file))
    for path in folder.glob("screenspot_*.json"):
        if not path.stem.endswith("_v2"):
            path.unlink()  # ours would read the items twice
    verdicts = dict.fromkeys(answers, "wrong_format")
    for row in found["result"]:
        inside = all(row["bbox"][axis] <= row["pred"][axis] <= row["bbox"][axis + 2] for axis in (0, 1))
        verdicts[row["text"]] = "correct" if inside else "wrong"
    cells = (f"{place}-{kind}" for place in ("mobile", "desktop", "web") for kind in ("text", "icon"))
    return verdicts, dict(zip(cells, (share for task in found["tasks_result"] for share in task), strict=True))


@dataclass(frozen=True)
class Peer:
    """A repository's metric file. theirs: its verdicts and figures. three: it tells what has no point from what is
    wrong."""

    repository: str
    file: str
    benchmark: str
    theirs: Callable[[Path, Path, Answers], tuple[Verdicts, Any]]
    three: bool = True
    refusals: bool = False


PEERS = (
    Peer(
        "likaixin2000/ScreenSpot-Pro-GUI-Grounding",
        "eval_screenspot_pro.py",
        "screenspot-pro",
        screenspot_pro,
    ),
    Peer("njucckevin/SeeClick", "pretrain/screenspot_test.py", "screenspot-v2", seeclick),
    Peer("uivision/UI-Vision", "eval/grounding/eval_uivision.py", "ui-vision", ui_vision),
    Peer("xlang-ai/OSWorld-G", "evaluation/eval.py", "osworld-g", osworld_g, three=False, refusals=True),
    Peer(
        "computer-agents/agent-studio",
        "eval_agent_desiderata/eval_gui_grounding.py",
        "groundui-1k",
        groundui,
        three=False,
    ),
)


def compared(peer: Peer, checkout: Path, count: int) -> dict[str, Any]:
    items, answers = items_and_answers(count, peer.refusals)
    with TemporaryDirectory() as scratch:
        folder = write_layout(peer.benchmark, Path(scratch) / "data", items)
        theirs, figures = peer.theirs(checkout / peer.file, folder, answers)
        mine, report = ours(peer.benchmark, folder, answers, peer.refusals)
    if not peer.three:
        mine = {said: "wrong" if verdict == "wrong_format" else verdict for said, verdict in mine.items()}
    by_said = {item.instruction: item for item in items}
    differ = [said for said in answers if mine.get(said) != theirs.get(said)]
    on_edges = sum(_on_edge(by_said[said], point) for said, point in answers.items())
    ours_too = {name: _figure(report, name) for name in figures}
    return {
        "benchmark": peer.benchmark,
        "answers": len(answers),
        "agree": len(answers) - len(differ),
        "right": sum(verdict == "correct" for verdict in mine.values()),
        "on_an_edge": on_edges,
        "without_a_point": sum(point is None for point in answers.values()),
        "figures": figures,
        "figures_agree": all(abs(ours_too[name] - figures[name]) < 1e-12 for name in figures),
        "differ": [
            {"answer": answers[said], "box": by_said[said].box, "size": by_said[said].size, "ours": mine.get(said)}
            for said in differ[:5]
        ],
    }


def regions(checkout: Path, file: str, count: int) -> dict[str, Any]:
    """UI-Vision's layout task: their whole evaluation and ours, with random boxes for answers."""
    items, _ = items_and_answers(count, refusals=False)
    chance, answers = random.Random(SEED), dict[str, list[int] | None]()
    for item in items:
        assert item.box is not None
        near = [round(1000 * side / item.size[axis % 2]) for axis, side in enumerate(item.box)]
        said = [min(1000, max(0, side + chance.choice((0, 0, -1, 20, -60)))) for side in near]
        answers[item.instruction] = None if chance.random() < 0.05 else said
    module = _module(checkout / file)
    model = SimpleNamespace(
        layout_gen=lambda name, explanation, image: {
            "bbox": [side / 1000 for side in answers[name] or ()],
            "raw_response": "",
        }
    )
    with TemporaryDirectory() as scratch:
        named = [replace(item, instruction=f"{item.instruction}: a part") for item in items]
        folder = write_layout("ui-vision-layout", Path(scratch) / "data", named)
        path = folder / "annotations/layout_grounding/layout_grounding.json"
        with _standing_in(checkout / file):
            theirs = module.process_layout_eval(
                SimpleNamespace(uivision_test_file=str(path), uivision_imgs=str(folder / "images")), model
            )
        benchmark = BENCHMARKS["ui-vision-layout"]
        loaded = load_benchmark(benchmark, BenchmarkSource(folder), SourcePictures())
        run = RegionRun(benchmark, loaded, LOCALIZERS["json"], Path(scratch) / "out", "scripted")
        run.claim()
        boxes = {
            f"{said}: a part": None if box is None else dict(zip(("x1", "y1", "x2", "y2"), box, strict=True))
            for said, box in answers.items()
        }
        asyncio.run(run.infer(Scripted({}, boxes), SourcePictures()))
        mine = run.judge()
        report = run.metric(mine)
    keys = ("iou", "precision", "recall")
    pairs = list(zip(mine, (row["eval_results"] for row in theirs["details"]), strict=True))
    agree = sum(all(abs(ours[key] - their[key]) < 1e-9 for key in keys) for ours, their in pairs)
    figures = {f"mean_{key}": float(theirs["metrics"][f"mean_{key}"]) for key in keys}
    return {
        "benchmark": benchmark.name,
        "answers": len(answers),
        "agree": agree,
        "without_a_box": sum(box is None for box in answers.values()),
        "figures": figures,
        "figures_agree": all(abs(report[key] - figures[key]) < 1e-9 for key in figures),
    }


def _on_edge(item: Labelled, point: Answer) -> bool:
    """Whether an answer lies exactly on an edge of a box, and not outside of it."""
    if item.box is None or point is None:
        return False
    left, top, right, bottom = map(Fraction, item.box)
    x, y = (Fraction(at) * side / 1000 for at, side in zip(point, item.size, strict=True))
    return left <= x <= right and top <= y <= bottom and (x in (left, right) or y in (top, bottom))


def _figure(report: Mapping[str, Any], name: str) -> float:
    """Our figure that has this name in theirs."""
    groups = {**report.get("by_kind", {}), **report.get("by_cell", {})}
    return float(groups[name]["accuracy"] if name in groups else report[name])


def find_peer(word: str) -> tuple[Peer, Path, str]:
    """The repository of a checkout, and its commit."""
    folder, _, commit = word.partition("@")
    for peer in PEERS:
        if (Path(folder) / peer.file).is_file():
            if not commit:
                asked = ["git", "-C", folder, "rev-parse", "HEAD"]
                commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
            return peer, Path(folder), commit or "unknown"
    raise SystemExit(f"{folder} has none of {', '.join(peer.file for peer in PEERS)}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.peer_metrics", description=__doc__)
    parser.add_argument("checkouts", nargs="+", metavar="CHECKOUT", help="or CHECKOUT@COMMIT")
    parser.add_argument("--answers", type=int, default=ANSWERS)
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    rows = []
    for word in options.checkouts:
        peer, checkout, commit = find_peer(word)
        digest = hashlib.sha256((checkout / peer.file).read_bytes()).hexdigest()
        source = {"repository": peer.repository, "commit": commit, "file": peer.file, "sha256": digest}
        rows.append(source | compared(peer, checkout, options.answers))
        if peer.theirs is ui_vision:
            rows.append(source | regions(checkout, peer.file, options.answers))
    for row in rows:
        figures = "" if row["figures_agree"] else ", figures differ"
        print(f"{row['repository']}: {row['agree']} of {row['answers']} agree on {row['benchmark']}{figures}")
    if options.out:
        report = {
            "date": datetime.now(UTC).date().isoformat(),
            "command": "python -m tests.peer_metrics CHECKOUT…",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "seed": SEED,
            "peers": rows,
        }
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return int(any(row["agree"] < row["answers"] or not row["figures_agree"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
