"""Makes grounding data: `python -m holotron.suites.screens --out DIR --samples 10000 --workers 8`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from holotron.suites.screens.generate import DEFAULT_MIX, GroundError, GroundSettings, generate
from holotron.suites.screens.viewer import write_view


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m holotron.suites.screens", description=__doc__)
    parser.add_argument("--out", type=Path, help="folder of the shards")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--asks", type=int, default=1, help="samples of one screen, each with other questions")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with a browser of its own")
    parser.add_argument(
        "--mix", type=_mix, default=dict(DEFAULT_MIX), help="such as widgets=4,miniwob=3,pages=3,packages=1"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each screen takes one")
    parser.add_argument("--held-out", action="store_true", help="seeds, templates and themes kept for evaluation")
    parser.add_argument("--folder", type=Path, action="append", default=[], help="where packages' HTML is looked for")
    parser.add_argument("--shard-mib", type=int, default=64)
    parser.add_argument(
        "--view", nargs=2, metavar=("FILE.html", "N"), help="write N samples as a page to look at instead"
    )
    given = parser.parse_args(arguments)
    if given.out is None and given.view is None:
        parser.error("--out or --view is needed")
    try:
        settings = GroundSettings(
            given.out or Path("."), given.samples, given.workers, given.mix, given.seed, given.held_out,
            tuple(given.folder), given.shard_mib << 20, asks=given.asks,
        )  # fmt: skip
        if given.view is not None:
            write_view(Path(given.view[0]), int(given.view[1]), settings)
        else:
            generate(settings)
    except GroundError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _mix(text: str) -> dict[str, float]:
    try:
        return {name: float(weight) for name, weight in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no mix; write it like widgets=4,pages=3") from None


if __name__ == "__main__":
    sys.exit(main())
