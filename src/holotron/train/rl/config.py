"""The sections of a recipe for online RL. Every switch is here, with its default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from holotron.train.optimizer import OptimizerConfig
from holotron.train.recipe import DataSource, Recipe, RecipeError
from holotron.train.toml_file import build, read_toml, with_settings

Ratio = Literal["token", "sequence"]
Reward = Literal["success", "reward", "partial"]
OnUpdate = Literal["keep", "recompute", "drop"]
WeightsBy = Literal["files", "broadcast"]


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is maximised.

    reward: "success" is 1 or 0, "reward" what the environment gave, "partial" the mean of success and a reward above 0:
    a near miss is worth something, and giving up no more than failing. step_cost: taken off for each step.
    by_std: advantages are divided by the group's standard deviation. step_weight: of step-level advantages (GiGPO), in
    which a step is compared with all of its group that saw the same screenshot; 0 leaves them out. discount: of the
    reward, a step further from the end.
    clip_low, clip_high: ratios are clipped to 1 - clip_low and 1 + clip_high. ratio: of a token, or "sequence": the
    geometric mean over an answer (GSPO).
    importance_cap: old log-probabilities are the trainer's, and its weight against the engine's is at most this
    (truncated importance sampling); 0: old log-probabilities are the engine's.
    kl: weight of the divergence from the model at the beginning; with LoRA that is the model without its changes.
    by_length: tokens count 1 / (tokens of their episode), else 1 / `tokens`, a constant.
    imitation: weight of the supervised loss on the recipe's [[data]], such as steps of teachers.
    """

    reward: Reward = "success"
    step_cost: float = 0.0
    by_std: bool = False
    step_weight: float = 0.0
    discount: float = 0.95
    clip_low: float = 0.2
    clip_high: float = 0.28
    ratio: Ratio = "token"
    importance_cap: float = 2.0
    kl: float = 0.0
    by_length: bool = False
    tokens: float = 32.0
    imitation: float = 0.0

    def __post_init__(self) -> None:
        _known("reward", self.reward, get_args(Reward))
        _known("ratio", self.ratio, get_args(Ratio))
        for name in ("step_cost", "step_weight", "importance_cap", "kl", "imitation"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if not 0 < self.discount <= 1:
            raise ValueError(f"discount is {self.discount}; it must be above 0 and at most 1")
        if not 0 < self.clip_low <= 1 or not self.clip_high > 0:
            raise ValueError(
                f"clip_low {self.clip_low} must be above 0 and at most 1, clip_high {self.clip_high} above 0"
            )
        if not self.tokens > 0:
            raise ValueError(f"tokens is {self.tokens}; it must be more than 0")


@dataclass(frozen=True)
class GroupConfig:
    """Which groups are played and learned from.

    size: attempts at one task and seed. count: groups of an iteration. refill: groups whose rewards are all equal teach
    nothing and are played anew, up to `refill` times `count` of them an iteration; 0 learns from what is left.
    replay: a group that failed throughout gets one stored success of its task, of which the last so many are kept; 0
    for none. uniform: the share of tasks drawn evenly; the others by how much they teach, most where half of the
    attempts succeed. memory: how many attempts an estimate of a task's success looks back.
    learned: attempts of a group that are learned from, those whose rewards vary the most (PODS); 0 are all.
    """

    size: int = 8
    count: int = 8
    learned: int = 0
    refill: float = 2.0
    replay: int = 8
    uniform: float = 0.2
    memory: float = 32.0

    def __post_init__(self) -> None:
        if self.size < 2 or self.count < 1:
            raise ValueError(
                f"size is {self.size} and count {self.count}; a group needs 2 attempts, an iteration 1 group"
            )
        if self.learned == 1 or not 0 <= self.learned <= self.size:
            raise ValueError(f"learned is {self.learned}; it must be 2 to {self.size}, the size, or 0 for all")
        if self.refill < 0 or self.replay < 0 or not self.memory > 0:
            raise ValueError(
                f"refill {self.refill} or replay {self.replay} is below 0, or memory {self.memory} is not above"
            )
        if not 0 <= self.uniform <= 1:
            raise ValueError(f"uniform is {self.uniform}; it must be between 0 and 1")


@dataclass(frozen=True)
class RolloutConfig:
    """How attempts are played.

    root: of webapps, the folder of the applications. tasks: of the suite; none named, all that may be learned from.
    shares: of several suites, how often tasks of each are drawn, such as {miniwob = 4, pages = 1}; without them every
    task counts alike.
    kinds: actions, instead of the suite's. first_seed: of the training seeds; every group has its own. steps, seconds:
    budget of an episode; 0 steps is the suite's. sessions: episodes at once; workers: processes with browsers, of
    which each has so many.
    staleness: how many updates old an attempt may be when it is learned from; 0 is synchronous: nothing is played while
    training runs, and on a CPU a run can be repeated exactly. on_update: what sessions do with what they remember when
    weights change. memory_gib: for the engine's sessions.
    copies: of the policy, each with an engine in a process of its own on this machine, to which workers are shared out;
    for small ones, whose engine and trainer take each other's time. 0: one engine in the trainer's process.
    engines: addresses of servers (`holotron serve --trainer …`) that are played against, in place of an engine in the
    trainer's process. engine_seconds: after which a run ends where none of them answers. weights: how they get there:
    "files" in the run's folder, which they see, too, or "broadcast" over torch.distributed. address: where servers
    reach the trainer for that; the one by which it reaches them, if it is not said.
    """

    suite: str
    root: str = ""
    tasks: tuple[str, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    split: str | None = None
    kinds: tuple[str, ...] = ()
    format: str | None = None
    first_seed: int = 0
    steps: int = 0
    seconds: float = 120.0
    max_tokens: int = 64
    temperature: float = 1.0
    sessions: int = 8
    workers: int = 1
    browsers: int = 1
    staleness: int = 1
    on_update: OnUpdate = "keep"
    memory_gib: float = 2.0
    tokens_per_session: int = 4096
    copies: int = 0
    engines: tuple[str, ...] = ()
    engine_seconds: float = 600.0
    weights: WeightsBy = "files"
    address: str = ""

    def __post_init__(self) -> None:
        _known("on_update", self.on_update, get_args(OnUpdate))
        _known("weights", self.weights, get_args(WeightsBy))
        if self.weights == "broadcast" and not self.engines:
            raise ValueError('weights = "broadcast" is for servers; name them in engines')
        if len(set(self.engines)) < len(self.engines) or not all(url.startswith("http") for url in self.engines):
            raise ValueError(f"engines are {list(self.engines)}; each must be a server of its own, as http://HOST:PORT")
        if self.copies and self.engines:
            raise ValueError("copies are on this machine and engines elsewhere; name one of them")
        for name in ("first_seed", "steps", "staleness", "copies"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        for name in ("sessions", "workers", "browsers", "max_tokens", "tokens_per_session"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.shares and set(self.shares) != set(self.suite.split("+")):
            raise ValueError(f"shares are of {', '.join(self.shares)}; they must be of the suites in {self.suite!r}")
        if any(not share > 0 for share in self.shares.values()):
            raise ValueError(f"shares are {dict(self.shares)}; each must be above 0")
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}; without chance all attempts of a group are the same")


@dataclass(frozen=True, kw_only=True)
class GrpoRecipe(Recipe):
    """A recipe for online RL: `steps` are iterations, `data` is what the imitation term is about.

    updates: steps of the optimiser in an iteration, over as many parts of its groups. epochs: how often it learns from
    all of them; what plays is worth more than what learns where browsers take longer. alarm: a mean difference of
    log-probabilities between engine and trainer, on the same weights, that is warned about. seconds: that iterations
    may take, over all starts: the run ends, as if its steps were done, before one that would take longer; 0 is no end.
    """

    stages: ClassVar[tuple[str, ...]] = ("grpo",)
    needs_data: ClassVar[bool] = False

    stage: str = "grpo"
    data: tuple[DataSource, ...] = ()
    keep_every: int = 1
    rollout: RolloutConfig
    groups: GroupConfig = field(default_factory=GroupConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    updates: int = 1
    epochs: int = 1
    alarm: float = 0.02
    seconds: float = 0.0
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(rate=1e-5, warmup=5, decay=0.0, average=0.0, weight_decay=0.0)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.data) != bool(self.objective.imitation):
            raise RecipeError("[[data]] and imitation of [objective] go together: what is imitated, and how much")
        if not 1 <= self.updates <= self.groups.count:
            raise RecipeError(
                f"updates is {self.updates}; an iteration of {self.groups.count} groups has 1 to that many"
            )
        if self.epochs < 1:
            raise RecipeError(f"epochs is {self.epochs}; it must be 1 or more")
        if self.seconds < 0:
            raise RecipeError(f"seconds is {self.seconds}; it must be 0, for no end, or more")
        if self.lora.rank and self.rollout.weights == "broadcast":
            raise RecipeError('with [lora] the adapter goes in files; leave out weights = "broadcast"')
        if self.random and self.rollout.copies:
            raise RecipeError("random weights are in one process alone; leave out copies, or name a checkpoint")
        if self.random and not self.lora.rank:
            raise RecipeError("random weights need [lora]: the engine plays with the trainer's; else name a checkpoint")
        for name in ("batches", "ocr_loss", "coordinate_jitter", "max_patches", "held_out", "spike"):
            if getattr(self, name):
                raise RecipeError(f"{name} belongs to supervised stages; leave it out of a recipe for online RL")


def read_grpo_recipe(path: Path, settings: Sequence[str] = (), **changes: Any) -> GrpoRecipe:
    """As `read_recipe`, of a recipe for online RL."""
    value = with_settings(read_toml(path, RecipeError), settings, RecipeError)
    return build(GrpoRecipe, value | changes | {"folder": path.parent}, str(path), RecipeError)


def _known(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; known are {', '.join(choices)}")
