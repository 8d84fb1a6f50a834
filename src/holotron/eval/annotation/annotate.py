"""Labels from pages, a model and a judge: accepted where they agree, kept for a person where they do not.

screens.jsonl    each screen, with the elements of its page where there was one
answers.jsonl    what the model said; judge.jsonl: what the judge said; each appended and synced before it is used
labels.jsonl     what follows from these; made anew by each run
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holotron.actions.action import ActionError
from holotron.agent.chat import ChatModel
from holotron.agent.cost import PriceTable
from holotron.agent.formats.localizers import JsonLocalizer, Localizer
from holotron.episodes.answer_log import AnswerLog
from holotron.episodes.datasets.pictures import SourcePictures
from holotron.episodes.errors import EpisodeError
from holotron.episodes.labels import Label, LabelFolder
from holotron.eval.annotation.asking import Annotators, Speaker
from holotron.eval.annotation.episode_labels import EPISODE_KINDS, label_episode
from holotron.eval.annotation.inputs import DamagedVideo, InputError, Inputs, Item, video_frames
from holotron.eval.annotation.pages import PageSource
from holotron.eval.annotation.screen_labels import label_screen
from holotron.eval.annotation.screens import ScreenLog
from holotron.eval.judges import Judge, WebJudge

ANSWERS, JUDGED = "answers.jsonl", "judge.jsonl"
KINDS = ("elements", "instructions", "captions", *EPISODE_KINDS)


@dataclass(frozen=True)
class AnnotationSettings:
    """kinds: what is labelled. elements: the most that a model names on a screen; per_screen: how many of them there
    are instructions for. votes: how often a point or a judgement is asked for. again: the pages of stored steps are
    opened, and asked what is on them where they look the same."""

    out: Path
    kinds: tuple[str, ...] = KINDS
    elements: int = 20
    per_screen: int = 4
    votes: int = 1
    sessions: int = 16
    browsers: int = 1
    size: tuple[int, int] = (1280, 800)
    again: bool = False
    allow_private: tuple[str, ...] = ()


@dataclass
class Annotation:
    """One run; policy and judge: models with their names, either of which may be missing."""

    settings: AnnotationSettings
    inputs: Inputs
    policy: tuple[ChatModel, str] | None = None
    judge: tuple[ChatModel, str] | None = None
    localizer: Localizer = field(default_factory=JsonLocalizer)
    method: Judge = field(default_factory=WebJudge)
    prices: PriceTable | None = None
    on_change: Callable[[int, int], None] = lambda *_: None

    async def run(self) -> dict[str, Any]:
        """Label what is given, and report."""
        out, began = self.settings.out, time.monotonic()
        out.mkdir(parents=True, exist_ok=True)
        items, damaged = list(self.inputs.items), list[str]()
        for video in self.inputs.videos:
            try:
                items += await asyncio.to_thread(video_frames, video, out / "frames")
            except DamagedVideo as error:
                damaged.append(str(error))
        async with AsyncExitStack() as stack:
            at_once = self.settings.sessions
            logs = {name: stack.enter_context(AnswerLog(out / name, at_once)) for name in (ANSWERS, JUDGED)}
            screens = stack.enter_context(ScreenLog(out))
            known = len(screens.screens)
            speakers = [
                Speaker(*model, logs[name]) if model is not None else None
                for name, model in ((ANSWERS, self.policy), (JUDGED, self.judge))
            ]
            annotators = Annotators(speakers[0], speakers[1], self.localizer, self.method, self.settings.votes)
            for problem in damaged:
                annotators.problem("not readable", problem)
            labels = await self._labels(annotators, items, screens, await self._pages(stack, items, screens))
            spent = {each.name: self._spent(each) for each in speakers if each is not None}
        distinct = {label.id: label for label in labels}
        LabelFolder(out).write(distinct.values())
        seconds = time.monotonic() - began
        return {
            "screens": len(items),
            "new_screens": len(screens.screens) - known,
            "labels": counted(distinct.values()),
            "models": spent,
            "seconds": round(seconds, 1),
            "items_per_second": round(len(items) / seconds, 2),
            "problems": dict(annotators.problems),
            "examples": annotators.examples,
        }

    def _spent(self, speaker: Speaker) -> dict[str, Any]:
        usage, price = speaker.log.usage(), self.prices.find(speaker.name) if self.prices else None
        told = asdict(usage)
        money = None if price is None else round(usage.money(price), 6)
        return {"asked_now": speaker.log.asked, "answers": told.pop("steps"), **told, "cost": money}

    async def _pages(self, stack: AsyncExitStack, items: Sequence[Item], screens: ScreenLog) -> PageSource | None:
        """A browser, where an address is left to be looked at."""
        left = [item for item in items if item.name not in screens.screens]
        if not any(item.path is None or (self.settings.again and item.url) for item in left):
            return None
        source = PageSource(self.settings.size, self.settings.browsers, self.settings.allow_private)
        return await stack.enter_async_context(source)

    async def _labels(
        self, annotators: Annotators, items: Sequence[Item], screens: ScreenLog, pages: PageSource | None
    ) -> list[Label]:
        settings, pictures = self.settings, SourcePictures()
        images = LabelFolder(settings.out).images
        places, done = asyncio.Semaphore(settings.sessions), 0
        episodes = list(self.inputs.episodes()) if {*EPISODE_KINDS} & {*settings.kinds} else []

        async def screen(item: Item) -> list[Label]:
            found = await screens.look(item, pictures, pages, settings.again)
            png = await asyncio.to_thread(images.get, found.digest)
            return await label_screen(annotators, found, png, settings.kinds, settings.elements, settings.per_screen)

        works: list[tuple[str, Callable[[], Awaitable[list[Label]]]]] = [
            *((item.name, partial(screen, item)) for item in items),
            *(
                (info.id, partial(label_episode, annotators, store, info, settings.kinds, images))
                for store, info in episodes
            ),
        ]

        async def one(name: str, work: Callable[[], Awaitable[list[Label]]]) -> list[Label]:
            nonlocal done
            async with places:
                try:
                    return await work()
                except (InputError, EpisodeError, ActionError) as error:
                    annotators.problem("not readable", f"{name}: {error}")
                    return []
                finally:
                    done += 1
                    self.on_change(done, len(works))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*work)) for work in works]
        return [label for task in tasks for label in task.result()]


def counted(labels: Iterable[Label]) -> dict[str, dict[str, int]]:
    """How many labels of each kind are in which state."""
    found: dict[str, Counter[str]] = {}
    for label in labels:
        kind = f"{label.kind}-{label.level}" if label.level else label.kind
        found.setdefault(kind, Counter())[label.state] += 1
    return {kind: dict(sorted(count.items())) for kind, count in sorted(found.items())}
