"""A task: what is to be done, where it starts, and what makes it one of its own."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _whole_text(value: object) -> object:
    """Pages may hold half a surrogate pair, which no file can: it becomes the replacement character."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


Text: TypeAlias = Annotated[str, BeforeValidator(_whole_text)]
Scalar: TypeAlias = bool | int | float | Text | None
Whole: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]


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
