"""Episodes as training examples: which steps of which episodes are learned, and how often they are drawn.

An episode that ended well is one example; of a format that writes each prompt anew, each of its steps is one. Where the
policy did other than its teacher says, one more ends there with the teacher's action (DAgger); what was done before it
is history, and only what the teacher would have done, too, is learned of it. Opening a view reads every episode's steps
once, without their images; an example is read again, with its images, when it is asked for.
"""

from __future__ import annotations

import logging
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from pydantic_core import from_json

from holotron.actions.action import ActionError, to_json
from holotron.agent.chat import Message
from holotron.agent.formats.base import conversation
from holotron.agent.policy_format import NANO, JsonFormat, NanoFormat, PolicyFormat
from holotron.episodes.errors import Damaged
from holotron.episodes.examples import Example, ExampleError, ExampleTurn
from holotron.episodes.reading import STEPS, read_steps, step_lines
from holotron.episodes.record import EpisodeInfo, ObservationRecord, Step
from holotron.episodes.selection import Selection
from holotron.episodes.store import EpisodeStore

log = logging.getLogger(__name__)


class _Choice(NamedTuple):
    """What was done at a step and what the teacher would have done, as canonical JSON."""

    actor: str
    action: str | None
    teacher: str | None

    @property
    def astray(self) -> bool:
        """Whether a policy did other than its teacher says."""
        return self.actor == "policy" and self.teacher is not None and self.action != self.teacher


@dataclass(frozen=True)
class _Place:
    """One example. end: its last step, None for the whole episode. corrected: the answer there is the teacher's."""

    store: EpisodeStore
    info: EpisodeInfo
    end: int | None
    corrected: bool
    weight: float


@dataclass(frozen=True)
class Group:
    """Attempts at the same task with the same seed, in order of their samples; each has its outcome."""

    suite: str
    task: str
    seed: int | None
    attempts: tuple[EpisodeInfo, ...]


class View:
    """The examples that a selection finds in stores, in an order that the selection's seed decides.

    They are what a policy of that format would have been told and would have answered. Damaged and unfinished episodes
    are told about and left out. Of several parts, each has other episodes.
    """

    def __init__(
        self,
        stores: Iterable[str | Path],
        selection: Selection | None = None,
        *,
        policy_format: PolicyFormat = NANO,
        part: int = 0,
        parts: int = 1,
        on_damage: Callable[[str], None] = lambda text: log.warning("an episode is left out: %s", text),
    ) -> None:
        self.selection = selection or Selection()
        self._format, self._on_damage = policy_format, on_damage
        found = [(store, info) for store in map(_opened, stores) for info in self._finished(store, part == 0)]
        random.Random(f"view/{self.selection.seed}").shuffle(found)
        self._episodes = found[: self.selection.limit or None]
        self._places = [place for store, info in self._episodes[part::parts] for place in self._places_of(store, info)]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Example:
        """ExampleError where the episode or an image was damaged since the view was opened."""
        place = self._places[index]
        try:
            return self._example(place)
        except (Damaged, ActionError, OSError) as error:
            raise ExampleError(f"{place.info.id}: {error}") from error

    @property
    def weights(self) -> list[float]:
        """How often each example is drawn, compared with 1."""
        return [place.weight for place in self._places]

    def groups(self) -> list[Group]:
        """All attempts at each task and seed that say something about the policy, failed ones too."""

        def key(info: EpisodeInfo) -> tuple[str, str, int]:
            return *_names(info), -1 if info.task.seed is None else info.task.seed

        infos = sorted((info for _, info in self._episodes), key=lambda info: (key(info), info.task.sample))
        return [
            Group(*_names(attempts[0]), attempts[0].task.seed, attempts)
            for attempts in (tuple(same) for _, same in groupby(infos, key))
        ]

    # ---- which ----

    def _finished(self, store: EpisodeStore, tell: bool) -> Iterator[EpisodeInfo]:
        def damaged(error: Damaged) -> None:
            if tell:
                self._on_damage(str(error))

        chosen = self.selection
        for info in store.list_episodes(on_damage=damaged):
            suite, task = _names(info)
            if (chosen.suites and suite not in chosen.suites) or (chosen.tasks and task not in chosen.tasks):
                continue
            if not info.finished and tell:
                self._on_damage(f"{info.id} is unfinished")
            if info.counts:
                yield info

    def _places_of(self, store: EpisodeStore, info: EpisodeInfo) -> Iterator[_Place]:
        weight = self.selection.weight_of(*_names(info))
        if not weight or not (self.selection.corrections or self._ended_well(info)):
            return
        try:
            choices = _choices(store, info)
        except (Damaged, OSError) as error:
            self._on_damage(f"{info.id}: {error}")
            return
        learned = [self._learned(choice) for choice in choices]
        if self.selection.corrections:
            for index, choice in enumerate(choices):
                if choice.astray:
                    yield _Place(store, info, index, True, weight)
        # An episode that the policy ended well in another way than its teacher would have is not imitated.
        if self._ended_well(info) and any(learned) and (learned[-1] or choices[-1].actor == "disturbance"):
            ends = [i for i, learn in enumerate(learned) if learn] if self._format.windowed else [None]
            yield from (_Place(store, info, end, False, weight) for end in ends)

    def _ended_well(self, info: EpisodeInfo) -> bool:
        outcome, least = info.outcome, self.selection.min_reward
        assert outcome is not None
        if self.selection.successes and outcome.success is not True:
            return False
        return least is None or (outcome.reward is not None and outcome.reward >= least)

    def _learned(self, choice: _Choice) -> bool:
        """Whether an action is imitated. Where a teacher was asked, only what it would have done, too."""
        actor, action, teacher = choice
        if action is None or actor == "disturbance" or teacher not in (None, action):
            return False
        return actor in self.selection.actors or (teacher is not None and "teacher" in self.selection.actors)

    # ---- reading ----

    def _example(self, place: _Place) -> Example:
        info, end = place.info, place.end
        steps = list(read_steps(_folder(place.store, info), info))
        taught = any(step.output is not None and step.teacher is not None for step in steps)
        steps = steps if end is None else steps[: end + 1]

        def image(seen: ObservationRecord) -> bytes | None:
            return None if seen.image is None else images[seen.image]

        images = {name: place.store.image(name) for step in steps if (name := step.observation.image) is not None}
        sent = conversation(self._as_asked(info), info.task.text, steps, image)
        turns = tuple(
            self._turn(place, step, image(step.observation), messages)
            for step, messages in zip(steps, sent, strict=True)
        )
        if self._format.windowed:
            turns = (self._windowed(turns),)
        outcome, task = info.outcome, info.task
        assert outcome is not None
        about = {"episode": info.id, "seed": task.seed, "sample": task.sample, "reward": outcome.reward}
        return Example(
            "/".join(("dagger", *_names(info)) if taught else _names(info)),
            turns,
            about | {"success": outcome.success, "cut": place.corrected},
            self._format.template,
        )

    def _as_asked(self, info: EpisodeInfo) -> PolicyFormat:
        """The format with the day of the episode and, unless the view names some, the kinds of actions it had."""
        dated, _, kinds = str(info.policy.extra.get("format", "")).partition(":")
        asked = self._format.on(dated.partition("@")[2])
        chosen = self._format.kinds != type(self._format).kinds
        return asked.with_kinds(kinds.split(",")) if kinds and self._is_own(info) and not chosen else asked

    def _turn(self, place: _Place, step: Step, image: bytes | None, messages: list[Message]) -> ExampleTurn:
        if place.corrected and step.index == place.end:
            assert step.teacher is not None
            action = self._format.from_screen(step.teacher.parse(), image)
            text, ids, learn = self._format.write(action, size=_size(step)), None, True
        else:
            (text, ids), learn = self._answer(place.info, step, image), self._learned(_choice(step))
        *before, question = messages
        turn = ExampleTurn(
            question.text, text, question.image, learn, ids, "\n".join(message.text for message in before)
        )
        return turn if turn.messages == messages else replace(turn, sent=tuple(messages))

    def _windowed(self, turns: tuple[ExampleTurn, ...]) -> ExampleTurn:
        """The last of the turns, after all before it as the format's window shows them."""
        *past, last = turns
        said = [message for turn in past for message in (*turn.messages, Message("assistant", turn.answer))]
        return replace(last, sent=tuple(self._format.history([*said, *last.messages])))

    def _answer(self, info: EpisodeInfo, step: Step, image: bytes | None) -> tuple[str, tuple[int, ...] | None]:
        """What stands as the answer of a step that was taken, and its tokens where they are known.

        The model's own words, unless they are of another format or another action than theirs was taken.
        """
        output, action = step.output, step.action
        own = output is not None and self._is_own(info)
        if output is not None and (action is None or (own and self._was_taken(step, output.text, image))):
            return output.text, output.token_ids
        if action is None:
            raise Damaged(f"step {step.index} has neither an action nor what the model wrote")
        shown = self._format.from_screen(action.parse(), image)
        return self._format.write(shown, step.note, step.thought, _size(step)), None

    def _is_own(self, info: EpisodeInfo) -> bool:
        spec = info.policy.extra.get("format")
        if spec is None:  # older episodes do not say; they are in JSON of our own
            return isinstance(self._format, NanoFormat | JsonFormat)
        return re.split("[@:]", str(spec))[0] == self._format.name

    def _was_taken(self, step: Step, text: str, image: bytes | None) -> bool:
        if step.actor == "policy":  # a localizer may have added the point
            return True
        try:
            said = self._format.to_screen(self._format.parse(text, _size(step)).action, image)
        except ActionError:
            return False
        return step.action is not None and to_json(said) == step.action.text


def _size(step: Step) -> tuple[int, int]:
    return step.observation.width, step.observation.height


def _opened(folder: str | Path) -> EpisodeStore:
    store = EpisodeStore(folder)
    if not (store.folder / "episodes").is_dir():
        raise ExampleError(f"there is no store of episodes at {folder}; it has no folder 'episodes'")
    return store


def _folder(store: EpisodeStore, info: EpisodeInfo) -> Path:
    return store.folder / "episodes" / info.id


def _names(info: EpisodeInfo) -> tuple[str, str]:
    return info.task.benchmark or "", info.task.name or info.task.key.task


def _choice(step: Step) -> _Choice:
    action, teacher = step.action, step.teacher
    return _Choice(step.actor, None if action is None else action.text, None if teacher is None else teacher.text)


def _choices(store: EpisodeStore, info: EpisodeInfo) -> list[_Choice]:
    """Of each step, in a fraction of the time that reading whole steps takes; Damaged as with those."""
    images = os.fspath(store.images.folder)  # a Path for each image would take as long as all the rest
    found: list[_Choice] = []
    for line in step_lines(_folder(store, info), info):
        try:
            step = from_json(line)
            image = step["observation"]["image"]
            action, teacher = ((step.get(name) or {}).get("text") for name in ("action", "teacher"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"{STEPS} has a line that is no step: {error!r}") from None
        if image is not None and not os.path.exists(f"{images}/{image[:2]}/{image}.png"):
            raise Damaged(f"the image {image} is missing")
        found.append(_Choice(step.get("actor", "policy"), action, teacher))
    return found
