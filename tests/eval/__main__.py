"""`make grounding`: the bundled policy on generated pages in the layout of every grounding benchmark, as a JSON report.

The same elements are in every layout, so that the scores must agree but for the rules: GroundUI-1K leaves edges out,
and some boxes are polygons for OSWorld-G. They are not the published items, and the scores are no scores of the
published benchmarks. Besides, a thousand items are asked of a scripted server by a run that is killed twice, and of the
policy in the run's own process, at four sizes, by one that is killed once.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import platform
import random
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from typer.testing import CliRunner

from holotron.cli.main import app
from holotron.suites.screens.describe import Describer
from holotron.suites.screens.generate import HELD_OUT_FROM
from holotron.suites.screens.labels import choose
from holotron.suites.screens.sources import Sources
from tests.agent.scripted_server import scripted_server

from .grounding_fixtures import LAYOUTS, Labelled, write_layout

QUESTIONS, SEED = 4, HELD_OUT_FROM + 50_000  # seeds that `eval grounding` does not come to
THOUSAND, AT_ONCE = 1000, 64
SCALES, ENGINE_SESSIONS, KILL_AT = (0.5, 0.75, 1.0, 1.5), 32, 400
KEPT = ("correct", "of", "accuracy", "interval", "wrong_format", "space", "boxes", "refusals_left_out", "seconds")


async def screens(count: int) -> list[Labelled]:
    """So many labelled elements of held-out pages; every twelfth is also said to be on a page where it is not."""
    found: list[Labelled] = []
    async with Sources(held_out=True) as sources:
        seed = SEED
        while len(found) < count:
            shot, seed = await sources.shot("pages", seed), seed + 1
            if shot is None:
                continue
            chance, describer = random.Random(f"layouts/{seed}"), Describer(shot.elements)
            for element in choose(shot.elements, chance, QUESTIONS):
                said = describer.describe(element, chance)
                if said is not None:
                    kind = "icon" if element.kind == "icon" else "text"
                    size = shot.width, shot.height
                    found.append(Labelled(shot.png, size, said, tuple(element.box), kind=kind))  # type: ignore[arg-type]
    return found[:count]


def for_osworld_g(items: list[Labelled]) -> list[Labelled]:
    """Some boxes as polygons, and some elements asked for on pages that have nothing like them."""
    changed = []
    for number, item in enumerate(items):
        if number % 12 == 0 and item.box is not None:
            left, top, right, bottom = item.box
            item = replace(item, box=None, polygon=(left, top, right, top, right, bottom, left, bottom))
        changed.append(item)
    return changed + [
        replace(item, instruction="the oxygen pressure gauge", box=None) for item in items[:: max(1, len(items) // 10)]
    ]


def asked(name: str, folder: Path, out: Path, *more: str) -> dict[str, Any]:
    words = ["eval", "grounding", name, "--data", str(folder), "--out", str(out), "--sessions", "32", "--json", *more]
    began = time.monotonic()
    result = CliRunner().invoke(app, words)
    if result.exit_code:
        raise SystemExit(f"{name}: {result.stderr}")
    report = json.loads(result.stdout)
    seconds = time.monotonic() - began
    figures = {key: report[key] for key in KEPT} | {"run_seconds": round(seconds, 1)}
    print(f"{name} {more}: {figures['correct']} of {figures['of']}, {figures['of'] / seconds:.1f} items/s", flush=True)
    return figures | {key: value for key, value in report.items() if key.startswith("by_")}


def killed(scratch: Path) -> dict[str, Any]:
    """A thousand items, of which every third is not where the server says, asked by a run that is killed twice."""
    buffer = io.BytesIO()
    Image.new("RGB", (1280, 720), "white").save(buffer, "PNG")
    boxes = [(600.0, 300.0, 700.0, 400.0), (1100.0, 600.0, 1200.0, 700.0)]
    items = [
        Labelled(buffer.getvalue(), (1280, 720), f"element {number}", boxes[number % 3 == 0])
        for number in range(THOUSAND)
    ]
    folder, out = write_layout("groundui-1k", scratch / "thousand", items), scratch / "thousand-run"
    command = [sys.executable, "-m", "holotron.cli.main", "eval", "grounding", "groundui-1k", "--data", str(folder)]
    began = time.monotonic()
    with scripted_server({"x": 500, "y": 500}) as server:
        command += [
            "--endpoint",
            server.url,
            "--format",
            "holo2",
            "--out",
            str(out),
            "--sessions",
            str(AT_ONCE),
            "--json",
        ]
        for wanted in (300, 600):
            running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while running.poll() is None and answered(out) < wanted:
                time.sleep(0.05)
            assert running.poll() is None, "it ended before it was killed"
            running.kill()
            running.wait()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        requests = len(server.requests)
    report, lines = json.loads(done.stdout), (out / "answers.jsonl").read_text().splitlines()
    found = {
        "items": THOUSAND,
        "kills": 2,
        "sessions": AT_ONCE,
        "answers": len({json.loads(line)["id"] for line in lines}),
        "answered_twice": len(lines) - THOUSAND,
        "asked_again": requests - THOUSAND,  # those under way when it was killed
        "right": report["correct"],
        "right_by_hand": THOUSAND - len(range(0, THOUSAND, 3)),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(found, flush=True)
    return found


def engine(work: Path, minutes: float) -> dict[str, Any]:
    """A thousand items at four sizes, asked of the policy by runs that end with a kill at 400, or when time is up."""
    folder, out, log = work / "thousand", work / "thousand-run", work / "runs.jsonl"
    if not (folder / "metadata_1k.jsonl").exists():
        items = asyncio.run(screens(THOUSAND // len(SCALES)))
        write_layout("groundui-1k", folder, [scaled(item, scale) for item in items for scale in SCALES])
    command = [sys.executable, "-m", "holotron.cli.main", "eval", "grounding", "groundui-1k", "--data", str(folder)]
    command += ["--out", str(out), "--sessions", str(ENGINE_SESSIONS), "--json"]
    deadline = time.monotonic() + 60 * minutes
    while answered(out) < THOUSAND and time.monotonic() < deadline:
        before, began = answered(out), time.monotonic()
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while running.poll() is None and time.monotonic() < deadline and not before < KILL_AT <= answered(out):
            time.sleep(0.2)
        killed = running.poll() is None
        running.kill()
        if running.wait() not in (0, -9):
            raise SystemExit(f"it ended with {running.returncode}")
        run = {"answered": answered(out) - before, "seconds": round(time.monotonic() - began, 1), "killed": killed}
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
    done = subprocess.run(command, check=True, capture_output=True, text=True) if answered(out) == THOUSAND else None
    runs = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    seconds = sum(run["seconds"] for run in runs)
    found = {
        "items": THOUSAND,
        "sessions": ENGINE_SESSIONS,
        "runs": runs,
        "kills": sum(run["killed"] for run in runs),
        "answers": len({line["id"] for line in lines}),
        "answered_twice": len(lines) - len({line["id"] for line in lines}),
        "items_per_second": round(sum(run["answered"] for run in runs) / seconds, 2),
    }
    if done is not None:
        report = json.loads(done.stdout)
        found |= {key: report[key] for key in ("correct", "of", "interval", "wrong_format")}
        rights = [result["right"] for result in report["results"]]
        parts = {f"{scale:g}": rights[place :: len(SCALES)] for place, scale in enumerate(SCALES)}
        found["by_scale"] = {scale: {"correct": sum(part), "of": len(part)} for scale, part in parts.items()}
    print({key: value for key, value in found.items() if key != "runs"}, flush=True)
    return found


def scaled(item: Labelled, scale: float) -> Labelled:
    with Image.open(io.BytesIO(item.png)) as image:
        size = round(item.size[0] * scale), round(item.size[1] * scale)
        resized, buffer = image.convert("RGB").resize(size, Image.Resampling.LANCZOS), io.BytesIO()
    resized.save(buffer, "PNG", compress_level=1)
    assert item.box is not None
    left, top, right, bottom = (side * size[axis % 2] / item.size[axis % 2] for axis, side in enumerate(item.box))
    return replace(item, png=buffer.getvalue(), size=size, box=(left, top, right, bottom))


def answered(out: Path) -> int:
    path = out / "answers.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def layouts(count: int, scratch: Path) -> dict[str, Any]:
    items, found = asyncio.run(screens(count)), dict[str, Any]()
    for name in LAYOUTS:
        here = for_osworld_g(items) if name.startswith("osworld-g") else items
        folder = write_layout(name, scratch / name, here)
        found[name] = asked(name, folder, scratch / f"{name}-run")
    zoomed = asked("screenspot-pro", scratch / "screenspot-pro", scratch / "zoom", "--zoom", "0.5")
    return found | {"screenspot-pro, --zoom 0.5": zoomed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--parts", default="layouts,killed,engine", help="some of them; others stay as the report has them"
    )
    parser.add_argument("--items", type=int, default=40, help="of each layout")
    parser.add_argument("--minutes", type=float, default=60.0, help="engine: most of them; another call goes on")
    parser.add_argument("--work", type=Path, help="engine: where its items and answers are")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "command": "make grounding",
        "policy": "holotron-nano",
        "items": "generated pages that nothing was taught on; not the published items",
    }
    if arguments.out.exists():
        report = json.loads(arguments.out.read_text(encoding="utf-8"))
    for part in arguments.parts.split(","):
        load = os.getloadavg()[0]
        with TemporaryDirectory() as scratch:
            work = arguments.work or Path(scratch)
            work.mkdir(parents=True, exist_ok=True)
            if part == "layouts":
                report[part] = layouts(arguments.items, Path(scratch))
            elif part == "killed":
                report[part] = killed(Path(scratch))
            else:
                report[part] = engine(work, arguments.minutes)
        report.setdefault("measured", {})[part] = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} at the beginning",
        }
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
