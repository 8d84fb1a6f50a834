"""A policy that knows nothing, so that scores of others mean something."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from holotron.actions.action import Action, Click, Drag, Hover, Press, Scroll, Type, to_json
from holotron.agent.chat import Message, Reply

WORDS = ("a", "the", "ok", "yes", "no", "1", "2", "10", "hello", "test", "name", "search")
KEYS = ("Enter", "Tab", "ArrowDown", "ArrowUp", "Backspace", "Escape")


class RandomModel:
    """Mostly clicks somewhere, sometimes types or presses a key. Each conversation has a seed of its own."""

    def __init__(self, seed: int = 0) -> None:
        self._draw = random.Random(seed)

    @property
    def name(self) -> str:
        return "random"

    async def open(self) -> RandomChat:
        return RandomChat(self._draw.getrandbits(64))


class RandomChat:
    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        return Reply(to_json(random_action(self._draw)), finish_reason="stop")

    async def close(self) -> None:
        pass


def random_action(draw: random.Random) -> Action:
    x, y = draw.randint(0, 1000), draw.randint(0, 1000)
    kind = draw.random()
    if kind < 0.7:
        return Click(x=x, y=y)
    if kind < 0.85:
        return Type(text=draw.choice(WORDS), x=x, y=y)
    if kind < 0.92:
        return Press(keys=draw.choice(KEYS))
    if kind < 0.96:
        return Drag(x=x, y=y, to_x=draw.randint(0, 1000), to_y=draw.randint(0, 1000))
    return Scroll(direction=draw.choice(("up", "down"))) if kind < 0.98 else Hover(x=x, y=y)
