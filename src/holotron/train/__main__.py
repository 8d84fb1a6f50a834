"""`python -m holotron.train recipes/localization.toml --out runs/localization`: what `holotron train sft` does.

With `torchrun --nproc-per-node 8 -m` in the place of `python -m`, one model is trained over eight GPUs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from holotron.episodes.examples import ExampleError
from holotron.model.errors import ModelError
from holotron.train.meter import Progress, TrainingError
from holotron.train.parallel import leave
from holotron.train.recipe import RecipeError, read_recipe
from holotron.train.sft import Interrupted, Trainer


def tell(progress: Progress) -> None:
    share = "" if progress.share_of_peak is None else f", {100 * progress.share_of_peak:.1f}% of peak"
    print(
        f"step {progress.step}/{progress.steps} loss {progress.loss:.4f} rate {progress.rate:.2e} "
        f"{progress.samples_per_second:.0f} samples/s, {progress.images_per_second:.0f} images/s{share}, "
        f"filled {100 * progress.filled:.0f}%, waited {100 * progress.waited:.0f}%, {progress.seconds:.0f} s",
        file=sys.stderr,
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m holotron.train", description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    given = parser.parse_args()
    changes = {} if given.steps is None else {"steps": given.steps}
    try:
        trainer = Trainer(read_recipe(given.recipe, **changes), given.out, given.device)
        folder = trainer.run(tell)
        if trainer.ranks.first:
            print(folder)
    except (RecipeError, TrainingError, Interrupted, ExampleError, ModelError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
