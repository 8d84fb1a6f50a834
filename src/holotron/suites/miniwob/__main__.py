"""`python -m holotron.suites.miniwob`: checks and measurements that take too long for the tests."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from holotron.suites.miniwob.agreement import write_agreement
from holotron.suites.miniwob.bench import measure_steps
from holotron.suites.miniwob.check import check_all
from holotron.suites.miniwob.config import MiniWoBConfig

EXAMPLES = """examples:
  python -m holotron.suites.miniwob check
  python -m holotron.suites.miniwob agree --out benchmarks/results/miniwob-agreement.json
  python -m holotron.suites.miniwob bench --pages 8 --seconds 20
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m holotron.suites.miniwob", epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    check = commands.add_parser("check", help="every task: loads, looks the same in two browser runs, ends")
    check.add_argument("--pages", type=int, default=4)
    agree = commands.add_parser("agree", help="rewards here and in the package's Selenium environment")
    agree.add_argument("--out", type=Path, required=True)
    bench = commands.add_parser("bench", help="steps per second with a policy that does nothing")
    bench.add_argument("--pages", type=int, default=8)
    bench.add_argument("--browsers", type=int, default=1)
    bench.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args(arguments)
    if given.what == "check":
        checked = asyncio.run(check_all(pages=given.pages, progress=_progress))
        print(json.dumps(checked, indent=1))
        return 0 if not checked["different"] and checked["ended"] == checked["tasks"] else 1
    if given.what == "agree":
        agreed = asyncio.run(write_agreement(given.out, _progress))
        print(json.dumps({name: value for name, value in agreed.items() if name != "comparisons"}, indent=1))
        return 0 if agreed["agree"] == agreed["episodes"] else 1
    config = MiniWoBConfig(browsers=given.browsers)
    print(json.dumps(asyncio.run(measure_steps(given.pages, given.seconds, config=config)), indent=1))
    return 0


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
