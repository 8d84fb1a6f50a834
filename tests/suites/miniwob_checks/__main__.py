"""`python -m tests.suites.miniwob_checks`: checks that take too long for the tests."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from holotron.suites.miniwob.tasks import all_tasks, restartable
from tests.suites.miniwob_checks.agreement import write_agreement
from tests.suites.miniwob_checks.check import check_all
from tests.suites.miniwob_checks.restarts import write_restarts
from tests.suites.miniwob_checks.steps import measure_steps

EXAMPLES = """examples:
  python -m tests.suites.miniwob_checks check
  python -m tests.suites.miniwob_checks agree --out benchmarks/results/miniwob-agreement.json
  python -m tests.suites.miniwob_checks restarts --out benchmarks/results/miniwob-restarts.json
  python -m tests.suites.miniwob_checks steps --rounds 3
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.suites.miniwob_checks", epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    check = commands.add_parser("check", help="every task: loads, looks the same in two browser runs, ends")
    check.add_argument("--pages", type=int, default=4)
    agree = commands.add_parser("agree", help="rewards here and in the package's Selenium environment")
    agree.add_argument("--out", type=Path, required=True)
    restarts = commands.add_parser("restarts", help="episodes in a page that had others before and in one just loaded")
    restarts.add_argument("--out", type=Path, required=True)
    restarts.add_argument("--tasks", nargs="+", default=list(all_tasks()))
    restarts.add_argument("--at-once", type=int, default=2)
    steps = commands.add_parser("steps", help="processor time of a step by kind of process, a line for each round")
    steps.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args(arguments)
    if given.what == "check":
        checked = asyncio.run(check_all(pages=given.pages, progress=_progress))
        print(json.dumps(checked, indent=1))
        return 0 if not checked["different"] and checked["ended"] == checked["tasks"] else 1
    if given.what == "restarts":
        moved = asyncio.run(write_restarts(given.out, given.tasks, given.at_once, _progress))
        print(json.dumps({"differ_when_restarted": sorted(moved)}, indent=1))
        return 0 if moved.isdisjoint(restartable()) else 1
    if given.what == "steps":
        for _ in range(given.rounds):
            print(json.dumps(asyncio.run(measure_steps())), flush=True)
        return 0
    agreed = asyncio.run(write_agreement(given.out, _progress))
    print(json.dumps({name: value for name, value in agreed.items() if name != "comparisons"}, indent=1))
    return 0 if agreed["agree"] == agreed["episodes"] else 1


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
