"""What people do on pages, with the words for it."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class ActivityField:
    """A text field: what it may be called, and what kind of thing is written into it."""

    labels: Sequence[str]
    kind: str


@dataclass(frozen=True)
class Activity:
    """Something people do on pages: what it is called, what it wants to know, and how one asks for it."""

    topics: Sequence[str]
    fields: Sequence[ActivityField]
    buttons: Sequence[str]
    sayings: Sequence[str]


@cache
def all_activities() -> tuple[Activity, ...]:
    """The activities of activities.toml."""
    listed = tomllib.loads(Path(__file__).with_name("activities.toml").read_text(encoding="utf-8"))["activities"]
    return tuple(
        Activity(**activity | {"fields": [ActivityField(**field) for field in activity["fields"]]})
        for activity in listed
    )
