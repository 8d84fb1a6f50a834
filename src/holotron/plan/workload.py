"""The agent workload: many sessions, each a prompt that grows by one screenshot and one answer per step."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Self

from holotron.model.config import ModelConfig
from holotron.model.grids import image_tokens
from holotron.plan.errors import PlanError

# What a 1920x1080 screenshot costs with nine tiles of 256 tokens; stands in where no model at hand has a vision tower.
DEFAULT_IMAGE_TOKENS = 2304


@dataclass(frozen=True)
class Workload:
    """Closed loop: a session sends its next step as soon as the last one is answered, ages evenly staggered.

    image_tokens None means: as many as the model's own vision tower makes of the screen (see `resolved`).
    text_only means that the screenshot's tokens arrive as text, so that nothing is paid for seeing.
    """

    sessions: int = 100
    steps: int = 20
    system_tokens: int = 1024
    screen: tuple[int, int] = (1920, 1080)
    image_tokens: int | None = None
    text_tokens: int = 64
    generated_tokens: int = 128
    text_only: bool = False

    def __post_init__(self) -> None:
        for name, value, least in (
            ("sessions", self.sessions, 1),
            ("steps", self.steps, 1),
            ("system_tokens", self.system_tokens, 0),
            ("image_tokens", self.image_tokens, 0),
            ("text_tokens", self.text_tokens, 1),
            ("generated_tokens", self.generated_tokens, 1),
            ("screen width", self.screen[0], 1),
            ("screen height", self.screen[1], 1),
        ):
            if value is not None and value < least:
                raise PlanError(f"{name} is {value}; it must be at least {least}")

    def resolved(self, model: ModelConfig, beside: ModelConfig | None = None) -> Self:
        """The same workload with image_tokens filled in, by the model's vision tower or else by that of `beside`."""
        if self.image_tokens is not None:
            return self
        for candidate in (model, beside):
            if candidate is not None and candidate.vision is not None:
                return replace(self, image_tokens=image_tokens(*self.screen, candidate.vision))
        return replace(self, image_tokens=DEFAULT_IMAGE_TOKENS)

    @property
    def tokens_per_image(self) -> int:
        if self.image_tokens is None:
            raise PlanError("the workload does not say how many tokens a screenshot is; call resolved(model) first")
        return self.image_tokens

    @property
    def new_tokens(self) -> int:
        """Tokens that a step appends before it generates."""
        return self.tokens_per_image + self.text_tokens

    @property
    def step_tokens(self) -> int:
        return self.new_tokens + self.generated_tokens

    @property
    def start_tokens(self) -> int:
        """Tokens a session holds before its first step."""
        return self.system_tokens

    @property
    def end_tokens(self) -> int:
        """Tokens a session holds when its episode is over."""
        return self.start_tokens + self.steps * self.step_tokens

    @property
    def mean_tokens(self) -> int:
        """Tokens a session holds on average: half-way through its episode."""
        return (self.start_tokens + self.end_tokens) // 2

    @property
    def mean_history(self) -> int:
        """Tokens already there when a step begins, averaged over the steps of an episode."""
        return self.start_tokens + (self.steps - 1) * self.step_tokens // 2


def parse_seconds(option: str, text: str) -> tuple[float, float]:
    """The seconds, LOW or LOW-HIGH, that an option of the command line was given."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?", text.strip())
    low, high = (float(match[1]), float(match[2] or match[1])) if match else (1.0, 0.0)
    if low > high:
        raise PlanError(f"{option} is {text!r}; write seconds, as LOW or LOW-HIGH, such as 4-8")
    return low, high


def parse_size(option: str, text: str, least: int = 1, most: int = 999_999) -> tuple[int, int]:
    """The WIDTHxHEIGHT in pixels that an option of the command line was given."""
    match = re.fullmatch(r"(\d{1,6})[xX×](\d{1,6})", text.strip())
    width, height = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (least <= width <= most and least <= height <= most):
        raise PlanError(f"{option} is {text!r}; write WIDTHxHEIGHT, such as 1920x1080, {least} to {most} pixels each")
    return width, height
