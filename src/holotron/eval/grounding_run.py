"""A grounding benchmark in three stages, each in a file of its own, so that each can be repeated without the others.

answers.jsonl    infer: what the model said to each item, appended as it comes; nothing that was answered is asked again
verdicts.jsonl   judge: the point of each answer, and whether it is in the box; made anew from the answers
report.json      metric: shares by cell, with intervals, beside published scores; made anew from the verdicts
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from holotron.actions.action import ActionError
from holotron.agent.chat import ChatModel, Message
from holotron.agent.formats.localizers import LOCALIZERS, JsonLocalizer, Localizer
from holotron.agent.policy_format import NANO, PolicyFormat
from holotron.episodes.datasets.pictures import SourcePictures
from holotron.episodes.datasets.records import DatasetError
from holotron.episodes.files import write_whole
from holotron.eval.benchmarks import GroundingBenchmark, GroundingItem, LoadedBenchmark
from holotron.eval.statistics import typical, wilson
from holotron.suites.screens.questions import FIND

SETTINGS, ANSWERS, VERDICTS, REPORT = "settings.json", "answers.jsonl", "verdicts.jsonl", "report.json"
CORRECT, WRONG, WRONG_FORMAT = "correct", "wrong", "wrong_format"


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
    """A benchmark, the model's way of being asked, and the folder in which the stages leave their files."""

    benchmark: GroundingBenchmark
    loaded: LoadedBenchmark
    localizer: Localizer
    folder: Path
    policy: str
    sessions: int = 16

    def claim(self) -> None:
        """A folder belongs to one run; DatasetError where it is another's."""
        told = {
            "benchmark": self.benchmark.name,
            "policy": self.policy,
            "localizer": type(self.localizer).__name__,
            "items": [item.id for item in self.loaded.items],
        }
        path = self.folder / SETTINGS
        if path.exists():
            before = json.loads(path.read_text(encoding="utf-8"))
            if different := sorted(key for key in told if before.get(key) != told[key]):
                raise DatasetError(
                    f"{self.folder} holds another run ({', '.join(different)} differ); choose another --out"
                )
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(told).encode(), sync=False)

    # ---- infer ----

    def answers(self) -> dict[str, dict[str, Any]]:
        """What was answered so far, by item; a line that was cut off is not one."""
        path = self.folder / ANSWERS
        if not path.exists():
            return {}
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            write_whole(path, whole, sync=False)
        lines = [json.loads(line) for line in whole.splitlines()]
        return {line["id"]: line for line in lines}

    async def infer(
        self, policy: ChatModel, pictures: SourcePictures, on_change: Callable[[int, int], None] = lambda *_: None
    ) -> None:
        """Ask what was not asked yet, so many at once."""
        have, items = self.answers(), self.loaded.items
        left = [item for item in items if item.id not in have]
        done, places = len(items) - len(left), asyncio.Semaphore(self.sessions)
        with (self.folder / ANSWERS).open("ab", buffering=0) as file:

            async def ask(item: GroundingItem) -> None:
                nonlocal done
                async with places:
                    answer = await self._ask(item, policy, pictures)
                file.write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
                done += 1
                on_change(done, len(items))

            on_change(done, len(items))
            async with asyncio.TaskGroup() as group:
                for item in left:
                    group.create_task(ask(item))

    async def _ask(self, item: GroundingItem, policy: ChatModel, pictures: SourcePictures) -> dict[str, Any]:
        picture = await asyncio.to_thread(pictures.read, item.images, item.image)
        began = time.monotonic()
        chat = await policy.open()
        try:
            messages = self.localizer.messages(item.instruction, picture.png, item.size)
            reply = await chat.say(messages, self.localizer.schema())
        finally:
            await chat.close()
        return {"id": item.id, "text": reply.text, "seconds": round(time.monotonic() - began, 3)}

    # ---- judge, metric ----

    def judge(self) -> list[dict[str, Any]]:
        """The verdict on each answer, in the order of the items."""
        have = self.answers()
        verdicts = [self._verdict(item, have[item.id]["text"]) for item in self.loaded.items if item.id in have]
        lines = "".join(json.dumps(verdict, ensure_ascii=False) + "\n" for verdict in verdicts)
        write_whole(self.folder / VERDICTS, lines.encode(), sync=False)
        return verdicts

    def _verdict(self, item: GroundingItem, text: str) -> dict[str, Any]:
        try:
            point = self.localizer.shares(text, item.size)
        except ActionError:
            return {"id": item.id, "cell": item.cell, "point": None, "verdict": WRONG_FORMAT}
        left, top, right, bottom = item.box
        inside = left <= point[0] <= right and top <= point[1] <= bottom
        return {"id": item.id, "cell": item.cell, "point": point, "verdict": CORRECT if inside else WRONG}

    def metric(self, verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The report. accuracy: over all items; mean_of_cells: of the shares of the published table's cells."""
        cells = sorted({str(verdict["cell"]) for verdict in verdicts})
        by_cell = {cell: _share([each for each in verdicts if each["cell"] == cell]) for cell in cells}
        parts: dict[str, dict[str, Any]] = {}
        for place, name in ((0, "by_group"), (-1, "by_kind")):
            found = sorted({cell.split("-")[place] for cell in cells})
            parts[name] = {
                part: _share([each for each in verdicts if str(each["cell"]).split("-")[place] == part])
                for part in found
            }
        all_items, seconds = _share(verdicts), [float(answer["seconds"]) for answer in self.answers().values()]
        report = {
            "benchmark": self.benchmark.name,
            "policy": self.policy,
            "localizer": type(self.localizer).__name__,
            "space": self.loaded.space,
            "boxes": self.loaded.boxes,
            "items": len(self.loaded.items),
            "published_items": self.benchmark.size,
            "answered": len(verdicts),
            "left_out": list(self.loaded.left_out),
            **all_items,
            "mean_of_cells": sum(cell["accuracy"] for cell in by_cell.values()) / max(1, len(by_cell)),
            "by_cell": by_cell,
            **parts,
            "seconds": typical(seconds),
            "published": dict(self.benchmark.published),
        }
        write_whole(self.folder / REPORT, json.dumps(report, indent=1).encode() + b"\n", sync=False)
        return report


def _share(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    right = sum(each["verdict"] == CORRECT for each in verdicts)
    return {
        "accuracy": right / len(verdicts) if verdicts else 0.0,
        "correct": right,
        "of": len(verdicts),
        "wrong_format": sum(each["verdict"] == WRONG_FORMAT for each in verdicts),
        "interval": wilson(right, len(verdicts)),
    }
