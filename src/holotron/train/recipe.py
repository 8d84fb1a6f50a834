"""A training run as a TOML file: what is trained, on what, how long. Unknown keys are errors."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from holotron.train.batches import BatchBudget
from holotron.train.lora import LoraConfig
from holotron.train.optimizer import OptimizerConfig

T = TypeVar("T")


class RecipeError(ValueError):
    """A recipe that cannot be followed."""


@dataclass(frozen=True)
class Source:
    """Shards to learn from, and how often they are drawn compared with the other sources.

    A growing one is looked through for new shards each time it has been gone through; such a run cannot be repeated
    exactly.
    """

    path: str
    weight: float = 1.0
    growing: bool = False


@dataclass(frozen=True)
class Recipe:
    """`start` is a checkpoint folder or a preset; `random` begins with random weights of that preset's shape.

    `seconds` bounds the time as `steps` bounds the work: the schedule follows whichever is further, so that a run on a
    machine of unknown speed ends in time, decayed. Such a run cannot be repeated exactly.

    `glyphs` is the weight of telling what is written where (`glyphs.py`), beside what is said; 0 leaves it out.
    `tremor` is how far, in thousandths, points are off that the policy remembers to have named (`tremor.py`).
    `max_patches` is how many patches a picture may have from now on, larger ones are shrunk; 0 leaves that as it was.
    """

    name: str
    stage: str
    start: str
    steps: int
    data: tuple[Source, ...]
    random: bool = False
    seconds: float = math.inf
    seed: int = 0
    compile: bool = False
    dtype: str = "bfloat16"
    spread: float = 3.0
    glyphs: float = 0.0
    tremor: float = 0.0
    max_patches: int = 0
    keep_every: int = 1000
    log_every: int = 20
    workers: int = 2
    batch: BatchBudget = field(default_factory=BatchBudget)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)

    def __post_init__(self) -> None:
        if self.stage not in ("localization", "navigation"):
            raise RecipeError(f"stage is {self.stage!r}; known are 'localization' and 'navigation'")
        if self.steps < 1 or not self.data:
            raise RecipeError("a recipe needs at least one step and one source of data")
        if self.dtype not in ("bfloat16", "float32"):
            raise RecipeError(f"dtype is {self.dtype!r}; known are 'bfloat16' and 'float32'")
        if self.glyphs < 0 or (self.glyphs and self.lora.rank):
            raise RecipeError(f"glyphs is {self.glyphs}; it must be 0 or more, and 0 beside low-rank changes")
        if self.tremor < 0:
            raise RecipeError(f"tremor is {self.tremor}; it must be 0 or more")
        if self.max_patches < 0 or 0 < self.max_patches < 4:
            raise RecipeError(f"max_patches is {self.max_patches}; it must be 4 or more, or 0 to leave it as it was")


def read_recipe(path: Path, **changes: Any) -> Recipe:
    """The recipe in a file, with some of its values changed; paths in it are seen from the file's folder."""
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError(f"{path} cannot be read: {error}") from error
    return _build(Recipe, value | changes, str(path))


def _build(kind: type[T], value: Any, where: str) -> T:
    if not isinstance(value, Mapping):
        raise RecipeError(f"{where} must be a table, not {value!r}")
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(value) - known):
        raise RecipeError(f"{where} has the unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
    hints = get_type_hints(kind)
    try:
        return kind(**{name: _convert(hints[name], item, f"{where}: {name}") for name, item in value.items()})
    except RecipeError:
        raise
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{where}: {error}") from error


def _convert(kind: Any, value: Any, where: str) -> Any:
    if is_dataclass(kind):
        return value if isinstance(value, kind) else _build(kind, value, where)  # type: ignore[arg-type]
    if kind == tuple[Source, ...]:
        if not isinstance(value, list | tuple):
            raise RecipeError(f"{where} must be a list of tables")
        return tuple(item if isinstance(item, Source) else _build(Source, item, where) for item in value)
    if isinstance(value, list):
        return tuple(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (int, float, str, bool) and type(value) is not kind:
        raise RecipeError(f"{where} is {value!r}; it must be of type {kind.__name__}")
    return value
