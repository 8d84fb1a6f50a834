"""Tries oracles out, tells in a table how good they are, or collects their episodes.

python -m holotron.suites.miniwob.oracle click-button --episodes 20 [--noise 0.2] [--save DIR]
python -m holotron.suites.miniwob.oracle --table benchmarks/results/nano/oracles.md --episodes 20
python -m holotron.suites.miniwob.oracle --out data/oracle --episodes 5000 --workers 2 [--model CHECKPOINT]
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from pathlib import Path

from holotron.suites.miniwob.errors import MiniWoBError
from holotron.suites.miniwob.oracle.collect import Collecting
from holotron.suites.miniwob.oracle.table import table, try_all
from holotron.suites.miniwob.oracle.teachers import taught_tasks
from holotron.suites.miniwob.oracle.trial import try_oracles
from holotron.suites.miniwob.oracle.workers import collect_all


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m holotron.suites.miniwob.oracle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tasks", nargs="*", help="tasks; all that have an oracle if none is named")
    parser.add_argument("--episodes", type=int, help="in all when collecting, of each task when trying (20)")
    parser.add_argument("--noise", type=float, help="probability of a random action before each step")
    parser.add_argument("--save", type=Path, help="keep the screenshots of each task's first episode there")
    parser.add_argument("--table", type=Path, help="play undisturbed and disturbed (0.2) and write the results there")
    parser.add_argument("--out", type=Path, help="collect into shards in this folder")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with a browser of its own")
    parser.add_argument("--pages", type=int, default=4, help="of each browser")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="stop collecting after that time")
    parser.add_argument("--split", choices=["train", "test"], help="only tasks of that part of BrowserGym's split")
    parser.add_argument("--model", help="a policy: collect on the states it gets itself into")
    parser.add_argument("--device")
    given = parser.parse_args()
    try:
        tasks = taught_tasks(given.tasks, given.split)
    except MiniWoBError as error:
        parser.error(str(error))
    if given.table is not None:
        noise = 0.2 if given.noise is None else given.noise
        tried = asyncio.run(try_all(tasks, given.episodes or 20, noise, given.pages))
        command = shlex.join(["python", "-m", "holotron.suites.miniwob.oracle", *sys.argv[1:]])
        given.table.write_text(table(tried, noise, command), encoding="utf-8")
        return
    if given.out is None:
        asyncio.run(try_oracles(tasks, given.episodes or 20, given.noise or 0.0, given.save))
        return
    base = Collecting(
        given.out,
        tuple(tasks),
        workers=given.workers,
        first_seed=given.first_seed,
        episodes=None if given.episodes is None else -(-given.episodes // given.workers),
        seconds=given.seconds,
        pages=given.pages,
        noise=0.1 if given.noise is None else given.noise,
    )
    counts = collect_all(base, given.model, given.device)
    for task in tasks:
        kept, lost = counts[f"kept {task}"], counts[f"lost {task}"]
        print(f"{task:32} {kept:6d} of {kept + lost:6d} kept")
    print(f"{counts['samples']} samples, {counts['steps']} steps, {counts['broken']} broken episodes")


if __name__ == "__main__":
    main()
