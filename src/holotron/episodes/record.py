"""An episode and what it is made of. This is schema 1: fields may be added under a higher number, never changed."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from holotron.actions.action import Action, parse_action, to_json
from holotron.actions.space import Space, SpaceKind

SCHEMA = 1
Reason: TypeAlias = Literal[
    "answered", "done", "step_limit", "time_limit", "token_limit", "infeasible", "stopped", "infrastructure"
]


def _whole_text(value: object) -> object:
    """Pages may hold half a surrogate pair, which no file can: it becomes the replacement character."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


Text: TypeAlias = Annotated[str, BeforeValidator(_whole_text)]
Scalar: TypeAlias = bool | int | float | Text | None
Whole: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]
Side: TypeAlias = Annotated[int, Field(ge=1)]
Seconds: TypeAlias = Annotated[float, Field(ge=0)]
Digest: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
EpisodeId: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


class Noun(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TaskKey(NamedTuple):
    """What makes a task one of its own in a rollout."""

    task: str
    seed: int | None
    sample: int


class Task(Noun):
    """What was to be done. `sample` counts attempts that are wanted besides each other, such as those of a group."""

    text: Text
    url: Text | None = None
    benchmark: Text | None = None
    name: Text | None = None
    seed: Whole | None = None
    sample: Count = 0
    extra: dict[Text, Scalar] = {}

    @property
    def key(self) -> TaskKey:
        parts = (self.benchmark or "", self.name) if self.name else (self.url or "", self.text)
        return TaskKey("/".join(parts), self.seed, self.sample)


class PolicyInfo(Noun):
    """Who acted."""

    model: Text
    weight_version: int | Text | None = None
    sampling: dict[Text, Scalar] = {}
    extra: dict[Text, Scalar] = {}


class EnvironmentInfo(Noun):
    """Where."""

    name: Text
    browser: Text | None = None
    viewport: tuple[Side, Side] | None = None
    extra: dict[Text, Scalar] = {}


class ObservationRecord(Noun):
    """What was seen: the image is named by the SHA-256 of its file."""

    image: Digest | None = None
    width: Side
    height: Side
    url: Text = ""
    title: Text = ""
    tabs: tuple[Text, ...] = ()
    notices: tuple[Text, ...] = ()


class ModelOutput(Noun):
    """What the model wrote. If a secret was taken out of the text, its tokens were dropped with it."""

    text: Text
    token_ids: tuple[Count, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    weight_version: int | Text | None = None
    prompt_tokens: Count | None = None
    cached_tokens: Count | None = None
    finish_reason: Text | None = None
    redacted: bool = False

    @model_validator(mode="after")
    def _check_lengths(self) -> ModelOutput:
        if self.token_ids is not None and self.logprobs is not None and len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"there are {len(self.token_ids)} token_ids but {len(self.logprobs)} logprobs")
        return self


class StepAction(Noun):
    """The action as canonical JSON; beside it the space in which the model gave its point, and the image's size."""

    text: Text
    space: SpaceKind = "relative"
    width: Side
    height: Side

    @classmethod
    def of(cls, action: Action, width: int, height: int, space: SpaceKind = "relative") -> StepAction:
        return cls(text=to_json(action), space=space, width=width, height=height)

    def parse(self) -> Action:
        return parse_action(self.text)

    @property
    def pixels(self) -> Space:
        """The pixels of the image the action is about."""
        return Space("pixels", self.width, self.height)


class Result(Noun):
    """What came of the action; the reward is what the environment had given until then."""

    ok: bool = True
    error: Text = ""
    reward: float | None = None


class Timings(Noun):
    """How long a step took, in seconds."""

    observe: Seconds = 0.0
    think: Seconds = 0.0
    act: Seconds = 0.0


class Step(Noun):
    """One observation, what the model made of it, and what came of that. No action: it could not be understood."""

    index: Count
    observation: ObservationRecord
    output: ModelOutput | None = None
    note: Text = ""
    thought: Text = ""
    action: StepAction | None = None
    result: Result = Result()
    timings: Timings = Timings()
    feedback: Text | None = None


class Outcome(Noun):
    """How it ended. If the infrastructure failed, nothing is known about the policy: no success, no reward."""

    reason: Reason
    success: bool | None = None
    reward: float | None = None
    detail: Text = ""

    @model_validator(mode="after")
    def _check_infrastructure(self) -> Outcome:
        if self.reason == "infrastructure" and (self.success is not None or self.reward is not None):
            raise ValueError("an infrastructure failure has neither success nor reward")
        return self


class EpisodeInfo(Noun):
    """An episode without its steps. The last three are known once it is finished, and guard the file of the steps."""

    id: EpisodeId
    task: Task
    policy: PolicyInfo
    environment: EnvironmentInfo
    started: float
    ended: float | None = None
    outcome: Outcome | None = None
    step_count: Count | None = None
    steps_bytes: int | None = None
    steps_sha256: Digest | None = None

    @property
    def finished(self) -> bool:
        return self.outcome is not None

    @property
    def counts(self) -> bool:
        """Whether it is finished and says something about the policy."""
        return self.outcome is not None and self.outcome.reason != "infrastructure"


class Episode(Noun):
    """A task, the steps taken, and how it ended. Without an outcome it was broken off, or is still going on."""

    id: EpisodeId
    task: Task
    policy: PolicyInfo
    environment: EnvironmentInfo
    started: float
    ended: float | None = None
    outcome: Outcome | None = None
    steps: tuple[Step, ...] = ()
