"""How tokens are chosen, as a caller says it. Without torch: the HTTP process has these, too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from holotron.engine.grammar import Grammar
from holotron.engine.limits import MAX_LOGPROBS, MAX_STOP_LENGTH, MAX_STOPS

# Below this a distribution is a single token in float32 anyway, and dividing by it overflows.
GREEDY_BELOW = 1e-5


@dataclass(frozen=True)
class SamplingParams:
    """How one generation chooses its tokens and when it ends. A temperature of 0 takes the most likely token."""

    max_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: Mapping[int, float] | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        _require("max_tokens", self.max_tokens, 1, math.inf)
        _require("temperature", self.temperature, 0, 1e6)
        _require("top_p", self.top_p, 0, 1)
        if self.top_p == 0:
            raise ValueError("top_p is 0, which leaves no token; set temperature to 0 for the most likely one")
        _require("top_k", self.top_k, 0, math.inf)
        _require("min_p", self.min_p, 0, 1)
        _require("min_tokens", self.min_tokens, 0, self.max_tokens)
        _require("repetition_penalty", self.repetition_penalty, 0.01, 100)
        _require("presence_penalty", self.presence_penalty, -2, 2)
        _require("frequency_penalty", self.frequency_penalty, -2, 2)
        if self.seed is not None:
            _require("seed", self.seed, -(2**63), 2**64 - 1)
        for name in ("logprobs", "prompt_logprobs"):
            if (value := getattr(self, name)) is not None:
                _require(name, value, 0, MAX_LOGPROBS)
        for id_, bias in (self.logit_bias or {}).items():
            _require("a token id in logit_bias", id_, 0, math.inf)
            _require(f"logit_bias[{id_}]", bias, -100, 100)
        if isinstance(self.stop, str):
            raise ValueError(f"stop is the text {self.stop!r}; it must be a tuple of texts")
        if len(self.stop) > MAX_STOPS:
            raise ValueError(f"stop has {len(self.stop)} texts; at most {MAX_STOPS} are possible")
        for text in self.stop:
            if not 0 < len(text) <= MAX_STOP_LENGTH:
                raise ValueError(f"a stop text must have 1 to {MAX_STOP_LENGTH} characters, not {len(text)}: {text!r}")
        for id_ in self.stop_token_ids:
            _require("an id in stop_token_ids", id_, 0, math.inf)
        if self.min_tokens and self.grammar is not None:
            raise ValueError("min_tokens and grammar exclude each other: a grammar says itself where its text ends")

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def has_penalties(self) -> bool:
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)


_INTEGERS = frozenset({"max_tokens", "top_k", "min_tokens", "seed", "logprobs", "prompt_logprobs"})


def _require(name: str, value: float, low: float, high: float) -> None:
    if name in _INTEGERS and not isinstance(value, int):
        raise ValueError(f"{name} is {value!r}; it must be a whole number")
    if not low <= value <= high:  # NaN is not either
        bounds = f"at least {low}" if high == math.inf else f"between {low} and {high}"
        raise ValueError(f"{name} is {value!r}; it must be {bounds}")
