"""What people do on pages, with the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from holotron.suites.pages.data import read_data


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
    return tuple(
        Activity(**activity | {"fields": [ActivityField(**field) for field in activity["fields"]]})
        for activity in read_data("activities")["activities"]
    )
