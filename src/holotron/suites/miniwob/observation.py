"""What a page shows, and where its episode stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MiniWoBObservation:
    """What the policy may see: a PNG of the task's area, its size, and the instruction that it shows."""

    png: bytes
    width: int
    height: int
    utterance: str


@dataclass(frozen=True)
class MiniWoBResult:
    """Where the episode stands. raw_reward is in [-1, 1]; `reward` is what the package scales by the time used."""

    done: bool
    raw_reward: float = 0.0
    reward: float = 0.0
    reason: str = ""
