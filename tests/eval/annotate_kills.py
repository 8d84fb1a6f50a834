"""`make annotate-kills`: 2,000 screens of three sources labelled by a command that is killed three times, as a report.

Pictures (generated widgets), a store of episodes (generated pages) and addresses (generated pages, served here). A
scripted model knows what the DOM says is on each screen, and leaves elements out, gives them wrong boxes, makes some
up and points elsewhere, each in a known share. Accepted labels of pictures and stores are compared with the DOM that
the command does not see there: right is the same name and half of the box. Every answer must be kept once, whatever is
killed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from holotron.actions.action import Click
from holotron.env.task import Task
from holotron.episodes.labels import Label, LabelFolder
from holotron.episodes.record import EnvironmentInfo, ObservationRecord, Outcome, PolicyInfo, Step, StepAction
from holotron.episodes.store import EpisodeStore
from holotron.suites.screens.pages import make_page
from holotron.suites.screens.rendering import SHEET_COLUMNS, SHEET_ROWS, Renderer, Shot
from holotron.suites.screens.widgets import make_widgets
from tests.agent.scripted_server import scripted_server
from tests.env.site import Site
from tests.eval.killed import Killer, circumstances, run_to_the_end
from tests.eval.label_model import Boxes, LabelModel, asked, truth_of

PICTURES, STEPS, ADDRESSES = 1200, 300, 500
ON_SHEET = SHEET_COLUMNS * SHEET_ROWS
WRONG = {"missed": 0.1, "moved": 0.1, "invented": 0.05, "astray": 0.05}
KILLS = (2000, 9000, 16000)  # answers of the model
AT_ONCE = 16
Truth = dict[str, tuple[tuple[int, int], Boxes]]


async def drawn(count: int, seed: int, kind: str) -> list[Shot]:
    """Screens with what is on them."""
    async with Renderer() as renderer:
        if kind == "pages":
            return [await renderer.draw(make_page(seed + number)) for number in range(count)]
        shots: list[Shot] = []
        for start in range(0, count, ON_SHEET):
            few = range(start, min(start + ON_SHEET, count))
            shots += await renderer.draw_sheet([make_widgets(seed + number) for number in few])
        return shots


def write_pictures(folder: Path, shots: Sequence[Shot]) -> Truth:
    folder.mkdir()
    for number, shot in enumerate(shots):
        (folder / f"{number:05d}.png").write_bytes(shot.png)
    return {_digest(shot.png): ((shot.width, shot.height), truth_of(shot.elements)) for shot in shots}


def write_store(folder: Path, shots: Sequence[Shot]) -> Truth:
    store = EpisodeStore(folder, sync="never")
    for number, shot in enumerate(shots):
        task = Task(text=f"Task {number}", benchmark="made", name=f"task-{number}")
        with store.begin(task, PolicyInfo(model="made"), EnvironmentInfo(name="made")) as writer:
            seen = ObservationRecord(width=shot.width, height=shot.height)
            action = StepAction.of(Click(x=1, y=1), shot.width, shot.height)
            writer.add_step(Step(index=0, observation=seen, action=action), shot.png)
            writer.finish(Outcome(reason="done", success=True))
    return {_digest(shot.png): ((shot.width, shot.height), truth_of(shot.elements)) for shot in shots}


def _digest(png: bytes) -> str:
    return hashlib.sha256(png).hexdigest()


class Learning:
    """Learns where things are on pages that only the command has drawn, from what it is told of them."""

    def __init__(self, truth: Truth) -> None:
        self.truth: Truth = dict(truth)
        self.model = LabelModel(self.truth, **WRONG)

    def answer(self, request: dict[str, Any]) -> str:
        text, digest = asked(request)
        if digest not in self.truth:
            found = re.findall(r'^\d+\. (.+?) "(.*)" at \[(\d+), (\d+), (\d+), (\d+)\]', text, re.MULTILINE)
            boxes = [(kind, name, tuple(map(float, sides))) for kind, name, *sides in found]
            if text.startswith("For each of these elements"):
                self.truth[digest] = ((1000, 1000), boxes)  # type: ignore[assignment]
            elif text.startswith("Describe"):
                return "A page"
        return self.model.answer(request)


def overlap(one: Sequence[float], other: Sequence[float]) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return width * height / (both - width * height)


def against(truth: Truth, labels: Sequence[Label]) -> dict[str, Any]:
    """Precision and recall of elements against what the DOM says."""
    found: Counter[str] = Counter()
    matched: set[tuple[str, int]] = set()
    for label in labels:
        _, boxes = truth[label.screen or ""]
        hits = [
            place
            for place, (_, name, box) in enumerate(boxes)
            if name == label.text and label.box is not None and overlap(label.box, box) >= 0.5
        ]
        found["right" if hits else "wrong"] += 1
        matched |= {(label.screen or "", place) for place in hits[:1]}
    total = sum(len(boxes) for _, boxes in truth.values())
    return {
        "labels": found.total(),
        "precision": round(found["right"] / max(1, found.total()), 4),
        "recall": round(len(matched) / max(1, total), 4),
        "elements_of_the_dom": total,
    }


def campaign(folder: Path, kills: Sequence[int], scale: float = 1.0) -> dict[str, Any]:
    began = time.monotonic()
    count = [round(scale * each) for each in (PICTURES, STEPS, ADDRESSES)]
    shots = asyncio.run(drawn(count[0], 0, "widgets")), asyncio.run(drawn(count[1], 50_000, "pages"))
    truth = write_pictures(folder / "pictures", shots[0]) | write_store(folder / "store", shots[1])
    drawing = time.monotonic() - began
    pages = {f"/{number}": make_page(90_000 + number).html for number in range(count[2])}
    killer, learning = Killer(kills), Learning(truth)

    def answer(request: dict[str, Any]) -> str:
        killer.count(hashlib.sha256(json.dumps(request["messages"]).encode()).hexdigest())
        server.requests.clear()  # they hold pictures
        return learning.answer(request)

    with Site(dict(pages)) as site, scripted_server(answer, policy_format={"format": "json"}) as server:
        (folder / "addresses.txt").write_text("".join(f"{site.origin}{path}\n" for path in pages))
        out = folder / "labels"
        command = ["data", "annotate", *(str(folder / name) for name in ("pictures", "store", "addresses.txt"))]
        command += ["--out", str(out), "--endpoint", server.url, "--judge", server.url, "--json", "--elements", "60"]
        command += ["--labels", "elements,instructions,captions", "--allow-private", "127.0.0.1"]
        command += ["--sessions", str(AT_ONCE)]
        began = time.monotonic()
        output, runs = run_to_the_end(command, [killer])
        seconds = time.monotonic() - began
    report = json.loads(output)
    labels = LabelFolder(out).read()
    elements = [label for label in labels if label.kind == "element" and label.screen in truth]
    keys = Counter(
        json.loads(line)["key"]
        for name in ("answers.jsonl", "judge.jsonl")
        for line in (out / name).read_text().splitlines()
    )
    pages_own = [label for label in labels if label.sources and label.sources[0].source == "dom"]
    return {
        "screens": report["screens"],
        "sources": {"pictures": count[0], "steps of a store": count[1], "addresses": count[2]},
        "distinct_screens": len({label.screen for label in labels}),
        "seconds_of_drawing_the_inputs": round(drawing, 1),
        "seconds": round(seconds, 1),
        "items_per_second": round(report["screens"] / seconds, 2),
        "answers_per_second": round(len(keys) / seconds, 1),
        "kills": killer.kills,
        "runs": runs,
        "answers": len(keys),
        # A kill may come before an answer that is on its way; each other one must be there.
        "asked_again": killer.asked.total() - len(keys),
        "in_flight_at_kills_at_most": (in_flight := 2 * AT_ONCE * killer.kills),
        "answers_lost": max(0, killer.asked.total() - len(keys) - in_flight),
        "answers_kept_twice": sum(count - 1 for count in keys.values()),
        "model_is_wrong_in": WRONG,
        "elements_without_a_page": {
            "as the model says": against(truth, elements),
            "accepted": against(truth, [label for label in elements if label.state == "accepted"]),
        },
        "labels": report["labels"],
        "labels_by_pages": Counter(label.state for label in pages_own),
        "accepted_episodes": report["accepted_episodes"],
        "problems": report["problems"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.eval.annotate_kills", description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="Of the number of screens and the moments of kills.")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = campaign(Path(folder), [round(args.scale * each) for each in KILLS], args.scale)
        scale = "" if args.scale == 1 else f" --scale {args.scale:g}"
        report = circumstances(f"python -m tests.eval.annotate_kills{scale}") | {"folder": gettempdir()} | found
        text = json.dumps(report, indent=1)
        print(text, flush=True)  # before the folder is removed, which takes its time
        if args.out is not None:
            args.out.write_text(text + "\n", encoding="utf-8")
    sys.exit(0 if report["answers_lost"] == report["answers_kept_twice"] == 0 else 1)


if __name__ == "__main__":
    main()
