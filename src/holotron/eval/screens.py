"""Screens that a small policy has never seen, and questions about them, each in a conversation of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from holotron.agent.chat import ChatModel, Message
from holotron.eval.worker_pool import Share
from holotron.suites.screens.generate import HELD_OUT_FROM
from holotron.suites.screens.rendering import Shot
from holotron.suites.screens.sources import Sources

Screen = tuple[str, int]  # source, seed
R = TypeVar("R")


def held_out(screens: int, sources: Sequence[str]) -> list[Screen]:
    """So many of each source, of seeds kept from training; generated pages of templates and themes kept, too."""
    return [(source, HELD_OUT_FROM + seed) for seed in range(screens) for source in sources]


def ask_share(share: Share[Screen], question: Callable[[Shot, Screen, ChatModel], Awaitable[list[R]]]) -> list[R]:
    """What becomes of the questions about all screens of a share; those that cannot be drawn are left out."""

    async def ask(policy: ChatModel) -> list[R]:
        async with Sources(held_out=True, at_once=share.at_once) as sources:
            await sources.prepare({source: 1 for source, _ in share.items})

            async def about(screen: Screen) -> list[R]:
                shot = await sources.shot(*screen)
                return [] if shot is None else await question(shot, screen, policy)

            return [answer for answers in await share.each(about) for answer in answers]

    with share.policy() as policy:
        return asyncio.run(ask(policy))


async def answer(
    policy: ChatModel, asked: str, png: bytes, schema: Mapping[str, Any] | None = None
) -> tuple[str, float]:
    """What is said to a question about a picture, and the seconds it took."""
    began = time.monotonic()
    chat = await policy.open()
    try:
        reply = await chat.say([Message("user", asked, png)], schema)
    finally:
        await chat.close()
    return reply.text, time.monotonic() - began
