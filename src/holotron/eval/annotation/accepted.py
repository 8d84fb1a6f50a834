"""Accepted labels as a store of episodes: what recipes learn from, and what `data export` writes in every format.

An instruction becomes an episode of one step, a click in the middle of its box. An episode with accepted thoughts has
them in its steps; one with an accepted hindsight instruction has that as its task, and succeeded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holotron.actions.action import Click
from holotron.actions.coordinates import from_pixels
from holotron.env.task import Scalar, Task
from holotron.episodes.images import ImageFolder
from holotron.episodes.labels import Label, LabelFolder
from holotron.episodes.record import (
    EnvironmentInfo,
    EpisodeInfo,
    ObservationRecord,
    Outcome,
    PolicyInfo,
    Step,
    StepAction,
    StepWithImage,
)
from holotron.episodes.store import EpisodeStore
from holotron.episodes.transfer import copy_in

ACCEPTED = "accepted"


def write_accepted(folder: Path) -> Counter[str]:
    """Bring what is accepted and not there yet into the folder's store; how many episodes of each kind there are.

    A label that a person rejected after it was written stays there: remove the store, and write it anew.
    """
    labels = [label for label in LabelFolder(folder).read() if label.state == "accepted"]
    # It can be made anew from the labels, so that a sync for each of thousands of episodes is not worth its time.
    store = EpisodeStore(folder / ACCEPTED, sync="never")
    images, count = LabelFolder(folder).images, Counter[str]()
    for label in labels:
        if label.kind == "instruction" and label.box is not None and label.size is not None:
            copy_in(store, *_grounding(label, images))
            count["grounding"] += 1
    verdicts = {label.episode: label.text == "success" for label in labels if label.kind == "verdict"}
    tasks = {label.episode: label for label in labels if label.kind == "hindsight"}
    thoughts: dict[str, dict[int, Label]] = defaultdict(dict)
    for label in labels:
        if label.kind == "thought" and label.step is not None:
            thoughts[label.episode][label.step] = label
    for episode in sorted({*tasks, *(each for each in thoughts if verdicts.get(each))}):
        first = tasks.get(episode) or next(iter(thoughts[episode].values()))
        made = _relabelled(EpisodeStore(first.origin), episode, tasks.get(episode), thoughts[episode])
        copy_in(store, *made)
        count["hindsight" if episode in tasks else "thoughts"] += 1
    return count


def _grounding(label: Label, images: ImageFolder) -> tuple[EpisodeInfo, list[StepWithImage]]:
    assert label.box is not None
    assert label.size is not None
    assert label.screen is not None
    left, top, right, bottom = label.box
    width, height = label.size
    middle = min(int((left + right) / 2), width - 1), min(int((top + bottom) / 2), height - 1)
    x, y = from_pixels(*middle, width, height)
    seen = ObservationRecord(width=label.size[0], height=label.size[1], image=label.screen)
    action = StepAction.of(Click(x=x, y=y), *label.size, "pixels")
    extra: dict[str, Scalar] = {
        "box": ",".join(f"{side:g}" for side in label.box),
        "data_type": label.element,
        "group": label.level,
    }
    task = Task(text=label.text, benchmark="annotate", name=f"grounding-{label.level}", extra=extra)
    info = _info(f"annotate.{label.id}", task, _sources([label]))
    step = Step(index=0, observation=seen, action=action, actor="teacher")
    return info, [(step, images.get(label.screen))]


def _relabelled(
    store: EpisodeStore, episode: str, hindsight: Label | None, thoughts: Mapping[int, Label]
) -> tuple[EpisodeInfo, list[StepWithImage]]:
    old, steps = store.info(episode), list[StepWithImage]()
    for step in store.steps(episode):
        found = thoughts.get(step.index)
        # The tokens of the answer are not those of the new words.
        changed: dict[str, Any] = {"output": None, **({"thought": found.text} if found else {})}
        image = step.observation.image
        steps.append((step.model_copy(update=changed), None if image is None else store.image(image)))
    text = old.task.text if hindsight is None else hindsight.text
    task = old.task.model_copy(update={"text": text, "benchmark": "annotate", "name": None, "seed": None})
    labels = [*([hindsight] if hindsight else []), *thoughts.values()]
    return _info(f"annotate.{episode}"[:128], task, _sources(labels), episode), steps


def _info(name: str, task: Task, sources: str, episode: str = "") -> EpisodeInfo:
    return EpisodeInfo(
        id=name,
        task=task,
        policy=PolicyInfo(model="annotate", extra={"from": episode or name, "sources": sources}),
        environment=EnvironmentInfo(name="annotate"),
        started=0.0,
        ended=0.0,
        outcome=Outcome(reason="done", success=True),
    )


def _sources(labels: Iterable[Label]) -> str:
    """Who spoke for them, once each."""
    spoken = (f"{each.source} {each.name}".strip() for label in labels for each in label.sources if each.agrees)
    return ", ".join(dict.fromkeys(spoken))
