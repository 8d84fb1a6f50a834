"""`python -m holotron.train recipes/localization.toml --out runs/localization`: what `holotron train sft` does.

With `torchrun --nproc-per-node 8 -m` in the place of `python -m`, one model is trained over eight GPUs.
A recipe for online RL is followed as by `holotron train grpo`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from holotron.episodes.examples import ExampleError
from holotron.model.errors import ModelError
from holotron.model.heartbeat import Heartbeat, to_stderr
from holotron.train.meter import Progress, TrainingError, told_evaluation
from holotron.train.parallel import leave
from holotron.train.recipe import Recipe, RecipeError, read_recipe
from holotron.train.rl.config import GrpoRecipe, read_grpo_recipe
from holotron.train.sft import Interrupted, Trainer
from holotron.train.toml_file import read_toml


def line_of(progress: Progress, step_seconds: float) -> str:
    """Where a run stands, in a line. step_seconds: what a step took of late; it is told where samples take long."""
    speed = f"{progress.samples_per_second:.0f} samples/s, {progress.images_per_second:.0f} images/s"
    if progress.samples_per_second < 1:
        speed = f"{step_seconds:.1f} s/step"
    words = [f"{speed}, {progress.tokens_per_second:,.0f} tokens/s"]
    if progress.share_of_peak is not None:
        words.append(f"{100 * progress.share_of_peak:.1f}% of peak")
    if progress.memory is not None:
        words.append(f"{progress.memory:.1f} GiB")
    words += [f"filled {100 * progress.filled:.0f}%", f"waited {100 * progress.waited:.0f}%"]
    words.append(f"{progress.seconds:.0f} s")
    if progress.evaluation is not None:
        words.append(told_evaluation(progress.evaluation))
    losses = [f"{suite} {loss:.4f}" for suite, loss in progress.loss_by_suite.items()]
    losses = losses if len(losses) > 1 else []
    if progress.held_out_loss is not None:
        losses.append(f"held out {progress.held_out_loss:.4f}")
    parts = f" ({', '.join(losses)})" if losses else ""
    return (
        f"step {progress.step}/{progress.steps} loss {progress.loss:.4f}{parts} "
        f"gradient {progress.gradient:.2f} rate {progress.rate:.2e} {', '.join(words)}"
    )


def train(recipe: Recipe, out: Path, device: str | None = None) -> tuple[Path, Trainer]:
    """Run a recipe, and say on stderr how it goes, to the end: the last state and the weights take a while."""
    # Of several processes the first one tells.
    told = to_stderr if os.environ.get("RANK", "0") == "0" else lambda _: None
    with Heartbeat("preparing the model and the data", told) as heartbeat:
        began, before = time.monotonic(), 0

        def tell(progress: Progress) -> None:
            nonlocal began, before
            now, steps = time.monotonic(), max(1, progress.step - before)
            told(line_of(progress, (now - began) / steps))
            began, before = now, progress.step
            heartbeat.now("keeping the state and the weights" if progress.step == progress.steps else "training")

        trainer = Trainer(recipe, out, device)
        return trainer.run(tell), trainer


def train_grpo(recipe: GrpoRecipe, out: Path, device: str | None = None) -> Path:
    """The same for a recipe of online RL."""
    from holotron.train.rl.trainer import GrpoTrainer

    return GrpoTrainer(recipe, out, device).run(lambda progress: to_stderr(progress.line))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m holotron.train", description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    parser.add_argument("--set", action="append", default=[], help="another value, like optimizer.rate=1e-4")
    given = parser.parse_args()
    changes = {} if given.steps is None else {"steps": given.steps}
    try:
        if "rollout" in read_toml(given.recipe, RecipeError):
            folder = train_grpo(read_grpo_recipe(given.recipe, given.set, **changes), given.out, given.device)
        else:
            folder, _ = train(read_recipe(given.recipe, given.set, **changes), given.out, given.device)
        if os.environ.get("RANK", "0") == "0":
            print(folder)
    except (RecipeError, TrainingError, Interrupted, ExampleError, ModelError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
