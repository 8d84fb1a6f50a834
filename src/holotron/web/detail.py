"""One episode as the page shows it: what is stored, and beside each step its action in words."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from holotron.actions.action import ActionError, to_dict
from holotron.actions.describe import describe
from holotron.episodes.errors import Damaged, EpisodeError, NewerSchema
from holotron.episodes.record import Episode, EpisodeInfo, Step
from holotron.episodes.store import EpisodeStore


def detail_of(store: EpisodeStore, episode_id: str, first: int = 0) -> dict[str, Any]:
    """The episode, its steps from `first` on, and what is damaged of it. An id that is not there is an EpisodeError."""
    try:
        info = store.info(episode_id)
    except (Damaged, NewerSchema) as error:
        return {"episode": None, "steps": [], "views": [], "damage": without_folder(store, error)}
    steps, damage = steps_of(store, info)
    return {
        "episode": Episode.of(info, ()).model_dump(mode="json", exclude={"steps"}),
        "steps": [step.model_dump(mode="json") for step in steps[first:]],
        "views": [view_of(step) for step in steps[first:]],
        "damage": damage,
    }


def steps_of(store: EpisodeStore, info: EpisodeInfo) -> tuple[list[Step], str | None]:
    """The steps; if there is damage, those before it, and what it is."""
    steps: list[Step] = []
    try:
        return list(store.steps(info.id)), None
    except EpisodeError as error:
        with suppress(Damaged):
            for step in store.steps(info.id, salvage=True):
                steps.append(step)
        return steps, without_folder(store, error)


def view_of(step: Step) -> dict[str, Any]:
    """The action of a step in words and as fields. What is not an action is said to be none."""
    if step.action is None:
        return {"sentence": "No action", "action": None}
    try:
        action = step.action.parse()
    except ActionError as error:
        return {"sentence": f"Not an action: {error}", "action": None}
    # Unlike the canonical JSON, the page wants the defaults too.
    return {"sentence": describe(action), "action": {**action.model_dump(mode="json"), **to_dict(action)}}


def episode_json(info: EpisodeInfo, steps: list[Step]) -> str:
    """The episode as one JSON text that Episode.model_validate_json reads."""
    return json.dumps(Episode.of(info, steps).model_dump(mode="json"), ensure_ascii=False, indent=1)


def compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def without_folder(store: EpisodeStore, error: Exception) -> str:
    """What an error says, less where the store is on this machine: people share what the page shows."""
    return str(error).replace(f"{store.folder}/", "")
