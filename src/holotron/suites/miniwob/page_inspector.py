"""What an oracle may look at: the page's elements and what its seed decided."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holotron.suites.miniwob.environment import MiniWoBEnvironment
from holotron.suites.miniwob.tasks import MiniWoBError

FIND = Path(__file__).with_name("page_inspector.js").read_text()
Point = tuple[float, float]


class NotFound(MiniWoBError):
    """An oracle looked for something the page does not show."""


@dataclass(frozen=True)
class PageElement:
    """An element of the page; `point` touches it, and is None where no click can."""

    point: Point | None
    left: float
    top: float
    width: float
    height: float
    text: str
    value: str | None
    checked: bool
    attributes: Mapping[str, str]

    @property
    def center(self) -> Point:
        return self.left + self.width / 2, self.top + self.height / 2


class PageInspector:
    """The privileged view, for one question to an oracle. It changes nothing.

    chance: random numbers from the episode's seed. They begin anew at each question, so that a choice between two ways
    to solve a task is the same throughout an episode.
    """

    def __init__(self, env: MiniWoBEnvironment) -> None:
        self._env = env
        self.task = env.task
        self.chance = random.Random(env.seed)

    @property
    def utterance(self) -> str:
        return self._env.instruction

    @property
    def quoted(self) -> list[str]:
        """The texts in double quotes in the instruction."""
        return re.findall(r'"([^"]*)"', self.utterance)

    def said(self, pattern: str) -> re.Match[str]:
        """Where the instruction matches a regular expression."""
        found = re.search(pattern, self.utterance)
        if found is None:
            raise NotFound(f"{self._env.task} seed {self._env.seed}: {pattern!r} is not in {self.utterance!r}")
        return found

    async def all(self, selector: str, text: str | None = None) -> list[PageElement]:
        """Every element that matches, in the order of the document, seen or not."""
        return [PageElement(**found | {"point": _point(found)}) for found in await self._env.call(FIND, selector, text)]

    async def one(self, selector: str, text: str | None = None) -> PageElement:
        """The first match that can be touched, else the first match."""
        found = await self.all(selector, text)
        if not found:
            wanted = selector if text is None else f"{selector} with text {text!r}"
            raise NotFound(f"{self._env.task} seed {self._env.seed}: nothing matches {wanted}")
        return next((element for element in found if element.point is not None), found[0])

    async def shows(self, selector: str, text: str | None = None) -> bool:
        return any(element.point is not None for element in await self.all(selector, text))

    async def read(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        return await self._env.evaluate(expression)

    async def texts(self, selector: str) -> list[str]:
        """The text of every match as the document has it, shown or not."""
        return list(await self._env.call("(s) => [...document.querySelectorAll(s)].map(e => e.textContent)", selector))

    async def has_focus(self, selector: str) -> bool:
        return bool(await self._env.call("(selector) => document.activeElement.matches(selector)", selector))

    async def room_below(self, selector: str) -> float:
        """How many pixels of a box's content lie below the part that is shown."""
        box = f"document.querySelector({json.dumps(selector)})"
        return float(await self.read(f"{box}.scrollHeight - {box}.clientHeight - {box}.scrollTop"))

    async def peek(self, expression: str) -> Any:
        """The value of a JavaScript expression that draws the episode's random numbers again, from the first one."""
        return await self._env.evaluate(
            f"(() => {{ const kept = Math.random; Math.random = new Math.seedrandom({json.dumps(self._env.seed)});"
            f" try {{ return {expression}; }} finally {{ Math.random = kept; }} }})()"
        )


def _point(found: Mapping[str, Any]) -> Point | None:
    return None if found["point"] is None else (found["point"][0], found["point"][1])
