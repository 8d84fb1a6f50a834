"""Accepted labels as a store of episodes: what recipes learn from, and what `data export` writes in every format.

An instruction becomes an episode of one step, a click in the middle of its box. An episode with accepted thoughts has
them in its steps; one with an accepted hindsight instruction has that as its task, and succeeded.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from holotron.actions.action import Click
from holotron.actions.coordinates import from_pixels
from holotron.env.task import Scalar, Task
from holotron.episodes.images import ImageFolder
from holotron.episodes.labels import ACCEPTED, Label, LabelFolder, accepted_id
from holotron.episodes.reading import encode
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


def write_accepted(folder: Path) -> Counter[str]:
    """Make the folder's store what is accepted now; how many episodes of each kind there are.

    Episodes that are there as they should be stay; others are put aside, and those that are wanted are written anew.
    """
    labels = [label for label in LabelFolder(folder).read() if label.state == "accepted"]
    # It can be made anew from the labels, so that a sync for each of thousands of episodes is not worth its time.
    store = EpisodeStore(folder / ACCEPTED, sync="never")
    there = {info.id: info for info in store.list_episodes()}
    images, count = LabelFolder(folder).images, Counter[str]()

    def bring(kind: str, used: Sequence[Label], make: Callable[[], tuple[EpisodeInfo, list[StepWithImage]]]) -> None:
        digest = hashlib.sha256(b"".join(map(encode, used))).hexdigest()[:16]
        before = there.pop(accepted_id(used[0]), None)
        count[kind] += 1
        if before is not None and before.finished and before.policy.extra.get("labels") == digest:
            return
        store.put_aside(accepted_id(used[0]))
        info, steps = make()
        extra = info.policy.extra | {"labels": digest}
        copy_in(store, info.model_copy(update={"policy": info.policy.model_copy(update={"extra": extra})}), steps)

    for label in labels:
        if label.kind == "instruction" and label.box is not None and label.size is not None:
            bring("grounding", [label], partial(_grounding, label, images))
    verdicts = {label.episode: label.text == "success" for label in labels if label.kind == "verdict"}
    tasks = {label.episode: label for label in labels if label.kind == "hindsight"}
    thoughts: dict[str, dict[int, Label]] = defaultdict(dict)
    for label in labels:
        if label.kind == "thought" and label.step is not None:
            thoughts[label.episode][label.step] = label
    for episode in sorted({*tasks, *(each for each in thoughts if verdicts.get(each))}):
        hindsight, steps = tasks.get(episode), thoughts[episode]
        used = [*([hindsight] if hindsight else []), *steps.values()]
        make = partial(_relabelled, EpisodeStore(used[0].origin), episode, hindsight, steps)
        bring("hindsight" if hindsight else "thoughts", used, make)
    for gone in there:
        store.put_aside(gone)
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
    info = _info(accepted_id(label), task, _sources([label]))
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
    return _info(accepted_id(labels[0]), task, _sources(labels), episode), steps


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
