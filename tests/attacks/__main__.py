"""`make test-attacks`: all attacks on the safety policy, in every Chromium of this machine, as a JSON report."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holotron.env.browser.launch import LaunchOptions
from tests.attacks.catalogue import catalogue
from tests.attacks.runner import Outcome, try_all

BROWSERS = {"headless shell": "chromium-headless-shell", "full": "chromium"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--out", type=Path, help="where the report goes; without it, to standard output")
    parser.add_argument("--browser", choices=BROWSERS, action="append", help="default: both")
    parser.add_argument("--kind", help="only attacks of this kind")
    arguments = parser.parse_args()
    reports: dict[str, Any] = {}
    for browser in arguments.browser or BROWSERS:
        executable = shutil.which(BROWSERS[browser])
        if executable is None:
            sys.exit(f"there is no {BROWSERS[browser]} on the PATH; apt-get install {BROWSERS[browser]}")
        reports[browser] = asyncio.run(_attack(executable, arguments.kind))
    report = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": "make test-attacks",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "about": "arrived: attacks that the forbidden site heard of, which must be none. refused: attacks that the"
        " policy was told of. control: attacks that arrive without the rules.",
        "browsers": reports,
    }
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")
    else:
        print(text)
    sys.exit(any(browser["arrived"] or browser["kinds_without_control"] for browser in reports.values()))


async def _attack(executable: str, kind: str | None) -> dict[str, Any]:
    attacks = [attack for attack in catalogue() if kind in (None, attack.kind)]
    began, done = time.monotonic(), 0

    def told(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        mark = "ARRIVED" if outcome.arrived else "refused" if outcome.refused else "silent"
        control = "" if outcome.control else ", no control"
        print(f"{done:3d}/{len(attacks)} {outcome.attack.id}: {mark}{control}", file=sys.stderr)

    outcomes = await try_all(attacks, LaunchOptions(executable=executable), on_done=told)
    version = os.popen(f"{executable} --version 2>/dev/null").read().strip()
    kinds: dict[str, dict[str, int]] = defaultdict(
        lambda: dict.fromkeys(("attacks", "arrived", "refused", "control"), 0)
    )
    for outcome in outcomes:
        row = kinds[outcome.attack.kind]
        row["attacks"] += 1
        row["arrived"] += bool(outcome.arrived)
        row["refused"] += bool(outcome.refused)
        row["control"] += bool(outcome.control)
    return {
        "version": version,
        "attacks": len(outcomes),
        "arrived": sum(bool(outcome.arrived) for outcome in outcomes),
        "seconds": round(time.monotonic() - began, 1),
        "kinds": dict(kinds),
        "kinds_without_control": [kind for kind, row in kinds.items() if not row["control"]],
        "without_control": [outcome.attack.id for outcome in outcomes if not outcome.control],
        "neither_refused_nor_control": [o.attack.id for o in outcomes if not o.refused and not o.control],
        "arrivals": [outcome.attack.id for outcome in outcomes if outcome.arrived],
    }


if __name__ == "__main__":
    main()
