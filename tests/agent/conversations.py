"""Conversations with a hosted model, and the processes that have them: they import only this."""

from __future__ import annotations

import asyncio
import io

from PIL import Image, ImageDraw

from holotron.agent.chat import Message, Reply
from holotron.agent.policy_format import BareJsonFormat

SCHEMA = BareJsonFormat(("click", "press", "answer")).schema()
STEPS = 3


def screenshot(seed: int) -> bytes:
    image = Image.new("RGB", (160, 120), (seed * 40 % 256, 200, 90))
    ImageDraw.Draw(image).rectangle((seed * 7 % 100, 20, seed * 7 % 100 + 30, 60), fill=(255, seed * 90 % 256, 0))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


async def converse(model, seed: int) -> list[Reply]:
    """One conversation of a few steps."""
    chat = await model.open()
    try:
        return [
            await chat.say([Message("user", f"step {step}", screenshot(seed + step))], SCHEMA if step else None)
            for step in range(STEPS)
        ]
    finally:
        await chat.close()


async def converse_all(model, seeds) -> list[list[Reply]]:
    return await asyncio.gather(*(converse(model, seed) for seed in seeds))


async def through(handle, work):
    async with await handle.connect() as hosted:
        return await work(hosted)


def ask_from_a_process(handle, seeds, results) -> None:
    results.put((seeds, asyncio.run(through(handle, lambda model: converse_all(model, seeds)))))


def keep_asking(handle, asked) -> None:
    async def main() -> None:
        async with await handle.connect() as model:
            chats = [await model.open() for _ in range(4)]
            while True:
                await asyncio.gather(*(chat.say([Message("user", "?")]) for chat in chats))
                asked.set()

    asyncio.run(main())
