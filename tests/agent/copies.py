"""A copy of a model that says which process it is in, and what copies are asked.

Processes that are started import this, and so nothing that takes long.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holotron.agent.chat import Message, Reply
from holotron.episodes.worker_pool import Share

from .replies import SingleChat

if TYPE_CHECKING:
    from holotron.agent.in_process import EngineModel


class Named(SingleChat):
    """Says which process it is in."""

    name = "named"

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        return Reply(str(os.getpid()))


@contextmanager
def named(problem: Exception | None = None) -> Iterator[Named]:
    if problem is not None:
        raise problem
    yield Named()


def process_of(model: Named, more: int) -> int:
    if more < 0:
        raise ValueError("fewer")
    return os.getpid() + more


async def ask(share: Share[str]) -> list[Reply]:
    """What this worker's copy says, asked for each item."""
    assert share.model is not None
    said = []
    for item in share.items:
        chat = await share.model.open()
        said.append(await chat.say([Message("user", item)]))
        await chat.close()
    return said


def answer(model: EngineModel) -> tuple[int, ...]:
    async def said() -> tuple[int, ...]:
        chat = await model.open()
        return (await chat.say([Message("user", "one")])).token_ids

    return asyncio.run(said())
