"""When a policy goes round in circles: the loop can see it in the screens and actions alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from holotron.actions.action import Action, Wait, to_json


@dataclass(frozen=True)
class StuckLimits:
    """repeats: the same action on the same screen. unchanged: steps on one screen, whatever was tried.

    rounds: how often a cycle of two to longest_cycle screens is gone through.
    """

    repeats: int = 3
    unchanged: int = 8
    rounds: int = 3
    longest_cycle: int = 4


@dataclass
class StuckDetector:
    """Is shown every step in turn."""

    limits: StuckLimits
    _screens: list[bytes] = field(default_factory=list)
    _actions: list[str] = field(default_factory=list)

    def add(self, image: bytes, url: str, action: Action | None) -> str | None:
        """In words, why the policy is stuck after this step; None where it is not."""
        self._screens.append(hashlib.sha256(url.encode("utf-8", "replace") + b"\0" + image).digest())
        # Waiting and answers that are no action are no repetition: both have limits of their own.
        plain = action is None or isinstance(action, Wait)
        self._actions.append("" if plain or action is None else to_json(action))
        limits = self.limits
        same = _run_length(self._screens)
        if self._actions[-1] and min(same, _run_length(self._actions)) >= limits.repeats:
            return f"the same action {limits.repeats} times on a screen that does not change"
        if same >= limits.unchanged:
            return f"nothing on the screen has changed for {limits.unchanged} steps"
        for period in range(2, limits.longest_cycle + 1):
            length = period * limits.rounds
            last = self._screens[-length:]
            if len(last) == length and len(set(last[:period])) > 1 and last == last[:period] * limits.rounds:
                return f"the same {period} screens {limits.rounds} times over"
        return None


def _run_length(values: Sequence[object]) -> int:
    """How many of the last values are the same."""
    count = 0
    for value in reversed(values):
        if value != values[-1]:
            break
        count += 1
    return count
