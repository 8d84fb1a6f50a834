"""Actions that a person must agree to before they happen."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Question:
    """What is about to happen: the action in words, the page's address, the text it is aimed at, and the rule."""

    action: str
    url: str
    text: str
    rule: str


@dataclass(frozen=True)
class Confirmation:
    """Patterns over the action, the address and the text under the pointer; what matches is asked about first.

    rules: regular expressions such as `buy|pay|delete`, upper and lower case alike. ask: returns whether to go on; it
    may take as long as a person takes.
    """

    rules: Sequence[str]
    ask: Callable[[Question], Awaitable[bool]]

    def __post_init__(self) -> None:
        if isinstance(self.rules, str):
            raise ValueError(f"rules is a list of patterns, not {self.rules!r}")
        _ = self._compiled

    @cached_property
    def _compiled(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(rule, re.IGNORECASE) for rule in self.rules)

    def rule_for(self, action: str, url: str, text: str) -> str | None:
        """The first rule that asks for a confirmation, or None."""
        found = (p.pattern for p in self._compiled if any(p.search(part) for part in (action, url, text)))
        return next(found, None)
