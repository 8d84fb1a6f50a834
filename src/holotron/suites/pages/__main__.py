"""Makes training data: `python -m holotron.suites.pages --out DIR --samples 1000 --workers 2 --seed 0 [--held-out]`.

With --try nothing is written; how often each template's teacher succeeds is printed instead.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import time
from pathlib import Path

from holotron.env.workers import end_with_parent
from holotron.suites.pages.make import Wanted, work
from holotron.suites.pages.task import all_templates
from holotron.suites.pages.trial import try_templates


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m holotron.suites.pages")
    parser.add_argument("templates", nargs="*", help="templates; all that are for training if none is named")
    parser.add_argument("--out", type=Path, help="where the shards go")
    parser.add_argument("--samples", type=int, default=100, help="how many to make, or with --try for each template")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with a browser of its own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", type=float, default=0.1, help="probability of a disturbance before each step")
    parser.add_argument("--model", help="a policy: collect on the states it gets itself into")
    parser.add_argument("--device", help="of the policy: cpu or cuda")
    parser.add_argument("--held-out", action="store_true", help="the templates kept for evaluation, and only those")
    parser.add_argument("--try", dest="tries", action="store_true", help="write nothing, print success per template")
    parser.add_argument("--save", type=Path, help="with --try: keep the screenshots there")
    given = parser.parse_args()
    names = tuple(given.templates) or tuple(found.name for found in all_templates(held_out=given.held_out))
    known = {found.name for found in all_templates()}
    if unknown := sorted(set(names) - known):
        parser.error(f"there is no template {unknown[0]!r}; there are {', '.join(sorted(known))}")
    if given.tries:
        fine = asyncio.run(try_templates(names, given.samples, given.noise, given.seed, given.save))
        raise SystemExit(0 if fine else 1)
    if given.out is None:
        parser.error("--out says where the shards go; or --try to write none")
    held_out = {found.name for found in all_templates(held_out=True)}
    if not given.held_out and (kept := held_out.intersection(names)):
        parser.error(f"{', '.join(sorted(kept))} are held out for evaluation; name them with --held-out")
    shares = [
        given.samples // given.workers + (index < given.samples % given.workers) for index in range(given.workers)
    ]
    wanted = [
        Wanted(
            given.out / f"pages-{given.seed}-{index}",
            share,
            f"{given.seed}/{index}",
            given.noise,
            names,
            given.model,
            given.device,
        )
        for index, share in enumerate(shares)
    ]
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(given.workers, end_with_parent) as workers:
        steps = sum(workers.map(work, wanted, chunksize=1))
    seconds = time.monotonic() - began
    print(f"{given.samples} samples, {steps} steps in {seconds:.0f} s: {steps / seconds:.1f} steps/s", file=sys.stderr)


if __name__ == "__main__":
    main()
