"""A grounding benchmark in three stages, each in a file of its own, so that each can be repeated without the others.

answers.jsonl    infer: what the model said to each item, appended as it comes; nothing that was answered is asked again
verdicts.jsonl   judge: the point of each answer, and whether it is right; made anew from the answers
report.json      metric: shares by group, with intervals, beside published scores; made anew from the verdicts
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from holotron.actions.action import ActionError
from holotron.agent.chat import ChatModel, Message, say_once
from holotron.agent.endpoint import EndpointRefused
from holotron.agent.formats.localizers import LOCALIZERS, JsonLocalizer, Localizer, NotThere
from holotron.agent.policy_format import NANO, PolicyFormat
from holotron.episodes.datasets.pictures import SourcePictures
from holotron.episodes.datasets.records import DatasetError
from holotron.episodes.files import write_whole
from holotron.episodes.line_log import LineLog, whole_part
from holotron.eval.benchmark_files import GroundingItem, LoadedBenchmark
from holotron.eval.benchmarks import GroundingBenchmark
from holotron.eval.statistics import typical, wilson
from holotron.eval.targets import Point, RefusalTarget
from holotron.eval.zoom import crop_around, enlarged, on_whole
from holotron.suites.screens.questions import FIND

SETTINGS, ANSWERS, VERDICTS, REPORT = "settings.json", "answers.jsonl", "verdicts.jsonl", "report.json"
CORRECT, WRONG, WRONG_FORMAT, UNANSWERED = "correct", "wrong", "wrong_format", "unanswered"
NOT_THERE = (-1.0, -1.0)  # the point of an answer that refuses


class NanoLocalizer(JsonLocalizer):
    """Small policies: the line that they were taught."""

    like: ClassVar[PolicyFormat] = NANO

    def messages(self, element: str, image: bytes, size: tuple[int, int]) -> list[Message]:
        return [Message("user", FIND + element, image)]


def localizer_of(policy_format: PolicyFormat) -> Localizer:
    """How a model of this format is asked for a place; one whose family has no words for that, as any chat model."""
    if policy_format.name == NANO.name:
        return NanoLocalizer()
    return LOCALIZERS.get(policy_format.name, LOCALIZERS["json"])


@dataclass(frozen=True)
class GroundingRun:
    """A benchmark, the model's way of being asked, and the folder in which the stages leave their files.

    sessions: items at once. zoom: the share of each side that is shown again, enlarged, around the first answer.
    refusals: answers may say that the element is not there, so that no grammar is forced on them.
    """

    benchmark: GroundingBenchmark
    loaded: LoadedBenchmark
    localizer: Localizer
    folder: Path
    policy: str
    sessions: int = 16
    zoom: float | None = None
    refusals: bool = False

    def claim(self) -> None:
        """A folder belongs to one run; DatasetError where it is another's."""
        told = {
            "benchmark": self.benchmark.name,
            "policy": self.policy,
            "localizer": type(self.localizer).__name__,
            "zoom": self.zoom,
            "refusals": self.refusals,
            "items": [item.id for item in self.loaded.items],
        }
        path = self.folder / SETTINGS
        if path.exists():
            before = json.loads(path.read_text(encoding="utf-8"))
            if different := sorted(key for key in told if (before.get(key) or None) != (told[key] or None)):
                raise DatasetError(
                    f"{self.folder} holds another run ({', '.join(different)} differ); choose another --out"
                )
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(told).encode(), sync=False)

    # ---- infer ----

    def answers(self) -> dict[str, dict[str, Any]]:
        """What was answered so far, by item; a line that was cut off is not one."""
        lines = map(json.loads, whole_part(self.folder / ANSWERS).splitlines())
        return {line["id"]: line for line in lines}

    async def infer(
        self, policy: ChatModel, pictures: SourcePictures, on_change: Callable[[int, int], None] = lambda *_: None
    ) -> list[str]:
        """Ask what was not asked yet, so many at once. Items that the server refused to answer, with its reasons."""
        have, items, refused = self.answers(), self.loaded.items, list[str]()
        left = [item for item in items if item.id not in have]
        done, places = len(items) - len(left), asyncio.Semaphore(self.sessions)
        with closing(LineLog(self.folder / ANSWERS, sync=False)) as log:
            log.open()

            async def ask(item: GroundingItem) -> None:
                nonlocal done
                async with places:
                    try:
                        answer = await self._ask(item, policy, pictures)
                    except EndpointRefused as error:
                        refused.append(f"{item.id}: {error}")
                        return
                log.append(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
                done += 1
                on_change(done, len(items))

            on_change(done, len(items))
            async with asyncio.TaskGroup() as group:
                for item in left:
                    group.create_task(ask(item))
        return refused

    async def _ask(self, item: GroundingItem, policy: ChatModel, pictures: SourcePictures) -> dict[str, Any]:
        picture = await asyncio.to_thread(pictures.read, item.images, item.image)
        began = time.monotonic()
        answer: dict[str, Any] = {"id": item.id, "text": await self._say(item, policy, picture.png)}
        point = self._point(answer["text"], item) if self.zoom is not None else None
        if self.zoom is not None and point is not None and point != NOT_THERE:
            crop = crop_around(point, item.size, self.zoom)
            part = await asyncio.to_thread(enlarged, picture.png, crop)
            answer |= {"first": answer["text"], "crop": crop, "text": await self._say(item, policy, part)}
        return answer | {"seconds": round(time.monotonic() - began, 3)}

    async def _say(self, item: GroundingItem, policy: ChatModel, png: bytes) -> str:
        messages = self.localizer.messages(item.instruction, png, item.size)
        return (await say_once(policy, messages, None if self.refusals else self.localizer.schema())).text

    # ---- judge, metric ----

    def judge(self) -> list[dict[str, Any]]:
        """The verdict on each item, in their order; one without an answer is unanswered, which is wrong."""
        have = self.answers()
        verdicts = [self._verdict(item, have.get(item.id)) for item in self.loaded.items]
        lines = "".join(json.dumps(verdict, ensure_ascii=False) + "\n" for verdict in verdicts)
        write_whole(self.folder / VERDICTS, lines.encode(), sync=False)
        return verdicts

    def _verdict(self, item: GroundingItem, answer: Mapping[str, Any] | None) -> dict[str, Any]:
        point = None
        if answer is not None:
            point = self._point(answer["text"], item)
            if "crop" in answer:  # a second look that found nothing leaves the first answer
                seen = None if point in (None, NOT_THERE) else point
                point = on_whole(seen, answer["crop"], item.size) if seen else self._point(answer["first"], item)
        if point is None:
            verdict = UNANSWERED if answer is None else WRONG_FORMAT
        else:
            verdict = CORRECT if item.target.met(point) else WRONG
        groups = {name: list(group) for name, group in item.groups.items()}
        return {"id": item.id, "groups": groups, "point": point, "verdict": verdict}

    def _point(self, text: str, item: GroundingItem) -> Point | None:
        """The point of an answer as shares of the picture it is on; None where it is none."""
        try:
            x, y = self.localizer.shares(text, item.size)
        except NotThere:
            return NOT_THERE
        except ActionError:
            return None
        return NOT_THERE if x < 0 and y < 0 else (x, y)

    def metric(self, verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The report. accuracy: over all items; mean: over the groups for which the benchmark publishes one."""
        return self.write(self.figures(verdicts))

    def write(self, report: dict[str, Any]) -> dict[str, Any]:
        write_whole(self.folder / REPORT, json.dumps(report, indent=1).encode() + b"\n", sync=False)
        return report

    def figures(self, verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        parts = {f"by_{name}": _by_group(name, verdicts) for name in self.benchmark.groupings}
        meant = parts.get(f"by_{self.benchmark.mean}", {})
        size = self.benchmark.size and self.benchmark.size + (self.benchmark.refusals if self.refusals else 0)
        seconds = [float(answer["seconds"]) for answer in self.answers().values()]
        return {
            "benchmark": self.benchmark.name,
            "policy": self.policy,
            "localizer": type(self.localizer).__name__,
            "space": self.loaded.space,
            "boxes": self.loaded.boxes,
            "zoom": self.zoom,
            "items": len(self.loaded.items),
            "published_items": size,
            "refusals": sum(isinstance(item.target, RefusalTarget) for item in self.loaded.items),
            "refusals_left_out": self.loaded.refusals,
            "duplicates": self.loaded.duplicates,
            "answered": sum(each["verdict"] != UNANSWERED for each in verdicts),
            "left_out": list(self.loaded.left_out),
            **_share(verdicts),
            "mean": sum(group["accuracy"] for group in meant.values()) / len(meant) if meant else None,
            **parts,
            "seconds": typical(seconds),
            "published": [asdict(each) for each in self.benchmark.published],
            "results": [
                {"id": each["id"], "right": each["verdict"] == CORRECT, "groups": each["groups"]} for each in verdicts
            ],
        }


def _by_group(name: str, verdicts: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    found = sorted({group for each in verdicts for group in each["groups"][name]})
    return {group: _share([each for each in verdicts if group in each["groups"][name]]) for group in found}


def _share(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    right = sum(each["verdict"] == CORRECT for each in verdicts)
    return {
        "accuracy": right / len(verdicts) if verdicts else 0.0,
        "correct": right,
        "of": len(verdicts),
        "wrong_format": sum(each["verdict"] == WRONG_FORMAT for each in verdicts),
        "interval": wilson(right, len(verdicts)),
    }
