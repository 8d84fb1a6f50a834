"""A training run as a TOML file: what is trained, on what, for how many steps. Unknown keys are errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, get_args

from holotron.agent.policy_format import find_format
from holotron.episodes.selection import Selection
from holotron.train.augment import AugmentConfig
from holotron.train.batches import BatchBudget
from holotron.train.feature_cache import FeatureCacheConfig
from holotron.train.forward import Recompute
from holotron.train.lora import LoraConfig
from holotron.train.optimizer import OptimizerConfig
from holotron.train.suite_evaluation import EvalConfig
from holotron.train.toml_file import build, read_toml, with_settings

PARTS = ("vision", "projector", "decoder")
SINKS = ("tensorboard", "wandb")


class RecipeError(ValueError):
    """A recipe that cannot be followed."""


@dataclass(frozen=True)
class DataSource(Selection):
    """What is learned from: tar shards (a file, folder or prefix) or the folder of an episode store.

    weight: how often it is drawn compared with the other sources. The rest is for stores. format: the policy format in
    which episodes are written as conversations, such as "holo2"; by default the one that the model is asked in.
    """

    shards: str = ""
    store: str = ""
    weight: float = 1.0
    format: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.shards) == bool(self.store):
            raise ValueError('say one of shards = "…", for tar files, and store = "…", for a folder of episodes')
        if not self.weight > 0:
            raise ValueError(f"weight is {self.weight}; it must be more than 0")
        if self.format:
            find_format(self.format)  # ValueError where there is none like it
        chosen_by_default = Selection()
        if self.shards and self.format:
            raise ValueError("format is about episodes; tar shards are learned as they are")
        for name in (f.name for f in fields(Selection)):
            if self.shards and getattr(self, name) != getattr(chosen_by_default, name):
                raise ValueError(f"{name} is about episodes; tar shards are learned as they are")

    @property
    def path(self) -> str:
        """As it is written in the recipe."""
        return self.shards or self.store


@dataclass(frozen=True)
class Recipe:
    """`start` is a checkpoint folder or a preset; `random` begins with random weights of that preset's shape.

    `coordinate_sigma` is how wide a near miss of a point is, in thousandths (`loss.py`).
    `ocr_loss` is the weight of telling what is written where (`ocr_loss.py`), beside what is said; 0 leaves it out.
    `coordinate_jitter` is how far, in thousandths, points in the action history are off (`coordinate_jitter.py`).
    `augment` shows pages on drawn canvases (`augment.py`).
    `max_patches` is how many patches a picture may have from now on, larger ones are shrunk; 0 leaves that as it was.
    `recompute` is what layers compute again for their gradients instead of keeping it: "none", "full", "selective",
    which keeps the results of matrix products, "mamba": full in Mamba layers and the tower, selective elsewhere, or
    "half": the same with every second Mamba layer selective.
    `frozen` names parts that do not learn: "vision", "projector", "decoder", or a longer beginning of names.
    `held_out` is measured, not learned: `held_out_batches` of it every `held_out_every` steps.
    `spike` ends the run at a loss so many times the mean before it; 0 ends it only at one that is no number.
    `sinks` are shown the figures, too: "tensorboard", "wandb". `eval` is a suite that is played by the weights of now.
    `feature_cache` keeps what a frozen tower makes of images on disk, for later epochs (`feature_cache.py`).
    `batches` make one step, over all processes; 0 is one for each process that the run was begun with.
    `folder` is where relative paths begin; a recipe from a file has that of the file.
    """

    stages: ClassVar[tuple[str, ...]] = ("localization", "navigation")
    needs_data: ClassVar[bool] = True

    name: str
    stage: str
    start: str
    steps: int
    data: tuple[DataSource, ...]
    random: bool = False
    seed: int = 0
    compile: bool = False
    dtype: str = "bfloat16"
    export_dtype: str = "bfloat16"
    coordinate_sigma: float = 3.0
    ocr_loss: float = 0.0
    coordinate_jitter: float = 0.0
    max_patches: int = 0
    keep_every: int = 1000
    log_every: int = 20
    workers: int = 2
    recompute: Recompute = "none"
    frozen: tuple[str, ...] = ()
    batches: int = 0
    held_out: tuple[DataSource, ...] = ()
    held_out_every: int = 500
    held_out_batches: int = 4
    spike: float = 0.0
    sinks: tuple[str, ...] = ()
    eval: EvalConfig = field(default_factory=EvalConfig)
    batch: BatchBudget = field(default_factory=BatchBudget)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    feature_cache: FeatureCacheConfig = field(default_factory=FeatureCacheConfig)
    folder: Path = field(default=Path(), compare=False)

    def __post_init__(self) -> None:
        if self.stage not in self.stages:
            raise RecipeError(f"stage is {self.stage!r}; known are {' and '.join(map(repr, self.stages))}")
        if self.steps < 1 or (self.needs_data and not self.data):
            raise RecipeError("a recipe needs at least one step and one source of data")
        if self.dtype not in ("bfloat16", "float32"):
            raise RecipeError(f"dtype is {self.dtype!r}; known are 'bfloat16' and 'float32'")
        if self.export_dtype not in ("bfloat16", "float16", "float32"):
            raise RecipeError(f"export_dtype is {self.export_dtype!r}; known are 'bfloat16', 'float16' and 'float32'")
        if self.recompute not in get_args(Recompute):
            raise RecipeError(f"recompute is {self.recompute!r}; known are {', '.join(get_args(Recompute))}")
        for part in self.frozen:
            if part.split(".")[0] not in PARTS:
                raise RecipeError(f"frozen has {part!r}; names begin with {', '.join(PARTS)}")
        if self.frozen and self.lora.rank:
            raise RecipeError("beside low-rank changes everything is frozen; leave frozen out")
        if self.held_out_every < 1 or self.held_out_batches < 1:
            raise RecipeError("held_out_every and held_out_batches must be 1 or more")
        if self.spike and self.spike <= 1:
            raise RecipeError(f"spike is {self.spike}; it must be more than 1, or 0 for none")
        for sink in self.sinks:
            if sink not in SINKS:
                raise RecipeError(f"sinks has {sink!r}; known are {', '.join(SINKS)}")
        if self.batches < 0:
            raise RecipeError(f"batches is {self.batches}; it must be 1 or more, or 0 for one of each process")
        if self.ocr_loss < 0 or (self.ocr_loss and self.lora.rank):
            raise RecipeError(f"ocr_loss is {self.ocr_loss}; it must be 0 or more, and 0 beside low-rank changes")
        if self.coordinate_jitter < 0:
            raise RecipeError(f"coordinate_jitter is {self.coordinate_jitter}; it must be 0 or more")
        if self.max_patches < 0 or 0 < self.max_patches < 4:
            raise RecipeError(f"max_patches is {self.max_patches}; it must be 4 or more, or 0 to leave it as it was")

    @property
    def starting_point(self) -> str:
        """The checkpoint folder to start from, or the name of a model."""
        folder = self.folder / self.start
        return str(folder) if folder.is_dir() or self.start.startswith(("/", ".")) else self.start


def read_recipe(path: Path, settings: Sequence[str] = (), **changes: Any) -> Recipe:
    """The recipe in a file, with some of its values changed; paths in it are seen from the file's folder.

    settings: such as optimizer.rate=1e-4.
    """
    value = with_settings(read_toml(path, RecipeError), settings, RecipeError)
    if "folder" in value:
        raise RecipeError(f"{path} has the unknown key 'folder'; paths in a recipe are seen from its own folder")
    return build(Recipe, value | changes | {"folder": path.parent}, str(path), RecipeError)
