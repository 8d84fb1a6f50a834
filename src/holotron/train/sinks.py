"""Other places where a run's figures are shown beside metrics.jsonl: TensorBoard and Weights & Biases."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from holotron.train.meter import Progress, TrainingError

LEFT_OUT = ("step", "steps", "seconds")


class Sink(Protocol):
    """Takes figures by name, of a step."""

    def write(self, step: int, figures: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run's folder: `tensorboard --logdir RUN`."""

    def __init__(self, out: Path, name: str, recipe: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(out / "tensorboard"))

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A run of Weights & Biases, the same again when it goes on. WANDB_MODE=offline needs no network."""

    def __init__(self, out: Path, name: str, recipe: Mapping[str, Any]) -> None:
        import wandb

        same = hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:16]
        given = {"name": name, "dir": str(out), "config": dict(recipe), "id": same, "resume": "allow"}
        self._run: Any = wandb.init(project="holotron", **given)

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=step)

    def close(self) -> None:
        self._run.finish()


SINKS: dict[str, Callable[[Path, str, Mapping[str, Any]], Sink]] = {"tensorboard": TensorBoard, "wandb": Wandb}


def check_sinks(names: Sequence[str]) -> None:
    """TrainingError where the package of one is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise TrainingError(
                f"sinks has {name!r}, whose package is not installed; pip install 'holotron[{name}]', or leave it out"
            )


def open_sinks(names: Sequence[str], out: Path, name: str, recipe: Mapping[str, Any]) -> list[Sink]:
    return [SINKS[each](out, name, recipe) for each in names]


def figures_of(progress: Progress) -> dict[str, float]:
    """All that is a number, by name; losses of suites and shares of kinds under the name of the whole."""
    found: dict[str, float] = {}
    for name, value in vars(progress).items():
        if isinstance(value, Mapping):
            found |= {f"{name}/{key}": part for key, part in value.items() if isinstance(part, int | float)}
        elif isinstance(value, int | float) and name not in LEFT_OUT:
            found[name] = value
    return found
