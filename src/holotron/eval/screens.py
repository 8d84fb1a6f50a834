"""Screens that a small policy has never seen, and questions about them, each in a conversation of its own."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from holotron.agent.baselines import RandomModel
from holotron.agent.chat import ChatModel, ChatOptions, Message
from holotron.episodes.worker_pool import Share, share_out
from holotron.suites.screens.generate import HELD_OUT_FROM
from holotron.suites.screens.rendering import Shot
from holotron.suites.screens.sources import Sources

Screen = tuple[str, int]  # source, seed
R = TypeVar("R")
RANDOM = "random"
TELL_SECONDS = 10.0


def held_out(screens: int, sources: Sequence[str]) -> list[Screen]:
    """So many of each source, of seeds kept from training; generated pages of templates and themes kept, too."""
    return [(source, HELD_OUT_FROM + seed) for seed in range(screens) for source in sources]


def ask_screens(
    question: Callable[[Shot, Screen, ChatModel], Awaitable[list[R]]],
    screens: Sequence[Screen],
    model: str,
    *,
    device: str | None = None,
    workers: int = 1,
    at_once: int = 4,
) -> list[R]:
    """What becomes of the questions about all screens, in no particular order. `question` is a function of a module.

    model: a checkpoint folder, a bundled name, or "random". Screens that cannot be drawn are left out.
    """
    done, told = 0, time.monotonic()

    def tell(*_: object) -> None:
        nonlocal done, told
        done += 1
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            print(f"{done} of {len(screens)} screens", file=sys.stderr, flush=True)

    with _policy(model, device) as policy:
        work = partial(_ask, question, at_once)
        parts = asyncio.run(share_out(work, screens, policy, workers=workers, on_report=tell))
    return [answer for part in parts for answer in part]


@contextmanager
def _policy(model: str, device: str | None) -> Iterator[ChatModel]:
    if model == RANDOM:
        yield RandomModel()
        return
    from holotron.agent.in_process import loaded

    with loaded(model, device, style=ChatOptions(max_tokens=160)) as policy:
        yield policy


async def _ask(
    question: Callable[[Shot, Screen, ChatModel], Awaitable[list[R]]], at_once: int, share: Share[Screen]
) -> list[R]:
    """One worker's part."""
    policy = share.model
    assert policy is not None
    async with Sources(held_out=True, at_once=at_once) as sources:
        await sources.prepare({source: 1 for source, _ in share.items})

        async def about(screen: Screen) -> list[R]:
            shot = await sources.shot(*screen)
            answers = [] if shot is None else await question(shot, screen, policy)
            share.report(screen)
            return answers

        return [answer for answers in await share.each(about, at_once) for answer in answers]


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
