"""An episode and what it is made of.

This is schema 3: fields may be added under a higher number, never changed. Schema 2 added what training needs to know
of a step: the prompt's tokens, which tokens were forced, both log-probabilities, who acted and what a teacher said.
Schema 3 added the ending `stuck` and how many tokens an answer had whose ids are not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from holotron.actions.action import Action, parse_action, to_json
from holotron.actions.coordinates import Space, SpaceKind
from holotron.env.task import Count, Noun, Scalar, Task, Text

SCHEMA = 3
Reason: TypeAlias = Literal[
    "answered", "done", "step_limit", "time_limit", "token_limit", "stuck", "infeasible", "stopped", "infrastructure"
]


Side: TypeAlias = Annotated[int, Field(ge=1)]
Seconds: TypeAlias = Annotated[float, Field(ge=0)]
Digest: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
EpisodeId: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


class PolicyInfo(Noun):
    """Who acted. extra["format"]: how it was asked, the `spec` of a PolicyFormat."""

    model: Text
    weight_version: int | Text | None = None
    sampling: dict[Text, Scalar] = Field(default_factory=dict)
    extra: dict[Text, Scalar] = Field(default_factory=dict)


class EnvironmentInfo(Noun):
    """Where."""

    name: Text
    browser: Text | None = None
    viewport: tuple[Side, Side] | None = None
    extra: dict[Text, Scalar] = Field(default_factory=dict)


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
    """What the model wrote. If a secret was taken out of the text, its tokens were dropped with it.

    prompt_ids: the tokens that this turn added before the answer; those of earlier turns are in earlier steps. Of a
    format that writes each prompt anew, all of them.
    logprobs: under the distribution each token was drawn from; model_logprobs: under the model's own.
    forced: which tokens the grammar left no choice for. weight_versions: of each token, where they differ.
    """

    text: Text
    prompt_ids: tuple[Count, ...] | None = None
    token_ids: tuple[Count, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    model_logprobs: tuple[float, ...] | None = None
    forced: tuple[bool, ...] | None = None
    weight_version: int | Text | None = None
    weight_versions: tuple[int | Text, ...] | None = None
    prompt_tokens: Count | None = None
    cached_tokens: Count | None = None
    completion_tokens: Count | None = None
    finish_reason: Text | None = None
    redacted: bool = False

    @model_validator(mode="after")
    def _check_lengths(self) -> ModelOutput:
        for name in ("logprobs", "model_logprobs", "forced", "weight_versions"):
            values = getattr(self, name)
            if self.token_ids is not None and values is not None and len(self.token_ids) != len(values):
                raise ValueError(f"there are {len(self.token_ids)} token_ids but {len(values)} {name}")
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


Actor: TypeAlias = Literal["policy", "teacher", "disturbance"]


class Step(Noun):
    """One observation, what the model made of it, and what came of that. No action: it could not be understood.

    actor: who chose the action; a disturbance is a clumsy action, never imitated. teacher: what the task's
    teacher would have done here, where one was asked. forced: the last step, in which only an answer was of use.
    """

    index: Count
    observation: ObservationRecord
    output: ModelOutput | None = None
    note: Text = ""
    thought: Text = ""
    actor: Actor = "policy"
    action: StepAction | None = None
    teacher: StepAction | None = None
    result: Result = Result()
    timings: Timings = Timings()
    feedback: Text | None = None
    forced: bool = False

    @property
    def error(self) -> str:
        return self.result.error


StepWithImage: TypeAlias = tuple[Step, bytes | None]


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


class _EpisodeHead(Noun):
    """Without an outcome an episode was broken off, or is still going on."""

    id: EpisodeId
    task: Task
    policy: PolicyInfo
    environment: EnvironmentInfo
    started: float
    ended: float | None = None
    outcome: Outcome | None = None


class EpisodeInfo(_EpisodeHead):
    """An episode without its steps. These three are known once it is finished, and guard the file of the steps."""

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


class Episode(_EpisodeHead):
    """A task, the steps taken, and how it ended."""

    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, info: EpisodeInfo, steps: Iterable[Step]) -> Episode:
        return cls(**{name: getattr(info, name) for name in _EpisodeHead.model_fields}, steps=tuple(steps))
