"""`make learn-small`: what online RL shows on two cores, as a JSON report.

A bandit and a page in a real browser are learned from random weights, and a run that is killed ten times ends as one
that was not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from holotron.suites.suite import Suite, find_suite
from holotron.train.rl.config import read_grpo_recipe
from holotron.train.rl.progress import GrpoProgress
from holotron.train.rl.trainer import GrpoTrainer

from .click_page import ClickPageSuite
from .runs import SAME, episodes, killed_run, lines, train
from .samples import write_run

KILLS = 10


def learned(folder: Path, suite: Suite[Any], steps: int) -> dict[str, Any]:
    """Success by iteration, and how long it took until 90% of attempts succeeded."""
    path = write_run(folder, steps=steps, staleness=1, size=8, count=6)
    began, cpu, rows = time.monotonic(), time.process_time(), list[dict[str, float | None]]()

    def tell(progress: GrpoProgress) -> None:
        row = {"seconds": round(time.monotonic() - began, 1), "success": progress.success}
        rows.append(row | {"steps_per_second": round(progress.steps_per_second, 1)})
        print(suite.name, progress.line, file=sys.stderr)

    GrpoTrainer(read_grpo_recipe(path), folder / "run", "cpu", suite).run(tell)
    good = [row["seconds"] for row in rows if (row["success"] or 0) >= 0.9]
    return {
        "first": rows[0]["success"],
        "last": rows[-1]["success"],
        "seconds_to_90": good[0] if good else None,
        "cpu_seconds": round(time.process_time() - cpu, 1),  # of this process, without the browser's
        "iterations": rows,
    }


def killed(folder: Path) -> dict[str, Any]:
    """Whether a run that was killed again and again told and made the same as one that was not."""
    path, out = write_run(folder, steps=KILLS + 1), folder / "killed"
    moments = [lambda wanted=5 + 9 * kill: episodes(out) >= wanted for kill in range(KILLS)]
    killed_run(path, out, moments)
    train(path, out)
    whole = train(path, folder / "whole")
    again = lines(out)
    same = len(again) == len(whole) and all(
        one[key] == getattr(other, key) for one, other in zip(again, whole, strict=True) for key in SAME
    )
    return {"kills": KILLS, "iterations": len(whole), "same": same, "checksum": whole[-1].checksum}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.train.rl", description=__doc__)
    parser.add_argument("--out", type=Path, help="where the report goes; without it, to standard output")
    parser.add_argument("--steps", type=int, default=12, help="iterations")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with TemporaryDirectory() as name:
        folder = Path(name)
        report = {
            "date": datetime.now(UTC).date().isoformat(),
            "command": "make learn-small",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the beginning",
            "torch": torch.__version__,
            "bandit": learned(folder / "bandit", find_suite("bandit"), given.steps),
            "page": learned(folder / "page", ClickPageSuite(), given.steps),
            "killed": killed(folder / "killed"),
        }
    text = json.dumps(report, indent=1) + "\n"
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
