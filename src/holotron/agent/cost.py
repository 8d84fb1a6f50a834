"""What episodes cost: tokens and time, and money by a price table that the user keeps."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol


class PriceError(ValueError):
    """A price table that cannot be read."""


@dataclass(frozen=True)
class Price:
    """Of a million tokens: of the prompt, of its part that the server had already, and of the answer."""

    input: float = 0.0
    cached: float | None = None  # None: as the rest of the prompt
    output: float = 0.0


@dataclass(frozen=True)
class PriceTable:
    """Prices by model; a name may be a pattern such as `holo*`. The first that fits counts."""

    prices: Mapping[str, Price]
    currency: str = "USD"

    def find(self, model: str) -> Price | None:
        return next((price for name, price in self.prices.items() if fnmatchcase(model, name)), None)


def read_prices(path: Path) -> PriceTable:
    """From a TOML or JSON file: `currency = "USD"`, and for each model a table with input, cached and output."""
    kind, loads = ("JSON", json.loads) if path.suffix == ".json" else ("TOML", tomllib.loads)
    try:
        value = dict(loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise PriceError(f"{path} is not {kind} with a table for each model: {error}") from error
    currency = value.pop("currency", "USD")
    prices = {}
    for name, entry in value.items():
        known = Price.__dataclass_fields__.keys()
        if not isinstance(entry, dict) or (unknown := entry.keys() - known):
            what = f"unknown field {min(unknown)!r}" if isinstance(entry, dict) else "it is no table"
            raise PriceError(f"{path}: the price of {name!r}: {what}; it has {', '.join(known)}")
        wrong = [key for key, part in entry.items() if isinstance(part, bool) or not isinstance(part, int | float)]
        if wrong:
            raise PriceError(f"{path}: {wrong[0]} of {name!r} is {entry[wrong[0]]!r}; it must be a number")
        prices[name] = Price(**entry)
    return PriceTable(prices, str(currency))


class Spent(Protocol):
    """What a step's answer says of its tokens, live (a Reply) or stored (a ModelOutput)."""

    @property
    def prompt_tokens(self) -> int | None: ...
    @property
    def cached_tokens(self) -> int | None: ...
    @property
    def completion_tokens(self) -> int | None: ...
    @property
    def token_ids(self) -> tuple[int, ...] | None: ...


@dataclass(frozen=True)
class TokenUsage:
    """Tokens and seconds of some steps. prompt: all that was sent; cached: the part of it that was computed before."""

    steps: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0
    seconds: float = 0.0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        mine, theirs = asdict(self), asdict(other)
        return TokenUsage(**{name: mine[name] + theirs[name] for name in mine})

    def money(self, price: Price) -> float:
        cached = price.input if price.cached is None else price.cached
        return ((self.prompt - self.cached) * price.input + self.cached * cached + self.output * price.output) / 1e6


def usage_of(steps: Iterable[Any]) -> TokenUsage:
    """Of StepRecords of an Agent or Steps of an episode."""
    total = TokenUsage()
    for step in steps:
        spent: Spent | None = step.reply if hasattr(step, "reply") else step.output
        timings = step.timings
        seconds = timings.observe + timings.think + timings.act
        if spent is None:
            total += TokenUsage(1, seconds=seconds)
            continue
        output = spent.completion_tokens if spent.completion_tokens is not None else len(spent.token_ids or ())
        total += TokenUsage(1, spent.prompt_tokens or 0, spent.cached_tokens or 0, output, seconds)
    return total
