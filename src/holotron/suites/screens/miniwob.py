"""The pages of MiniWoB++ as they are at the start of an episode, or after a few things were touched."""

from __future__ import annotations

import random
from pathlib import Path

from holotron.suites.miniwob.environment import MiniWoBEnvironment
from holotron.suites.miniwob.pool import MiniWoBPool
from holotron.suites.miniwob.tasks import HEIGHT, WIDTH, all_tasks, as_task
from holotron.suites.screens.labels import ScreenElement, Writing, from_page
from holotron.suites.screens.rendering import LABELS, Shot, smallest_side
from holotron.suites.screens.words import Words

NAME_DRAWINGS = Path(__file__).with_name("drawings.js").read_text()
TOUCHED = frozenset({"check box", "radio button", "text field", "text area", "tab", "section"})
TOUCH_CHANCE = 0.4


async def draw_miniwob(pool: MiniWoBPool, seed: int) -> Shot:
    """The screen of a seed: the task is drawn from it too."""
    chance = random.Random(f"miniwob/{seed}")
    task = chance.choice(sorted(all_tasks()))
    touches = chance.randint(1, 3) if chance.random() < TOUCH_CHANCE else 0
    async with pool.lease() as env:
        await env.reset(as_task(task), seed)
        for _ in range(touches):
            await _touch(env, chance)
            if (await env.result()).done:  # what ends an episode covers the page
                await env.reset(as_task(task), seed)
                break
        observation = await env.observe()
        elements, writing = await _look(env)
    return Shot(observation.image, WIDTH, HEIGHT, elements, {"task": task}, writing)


async def _look(env: MiniWoBEnvironment) -> tuple[tuple[ScreenElement, ...], Writing]:
    await env.call(NAME_DRAWINGS)
    return from_page(await env.call(LABELS, WIDTH, HEIGHT, smallest_side(WIDTH)))


async def _touch(env: MiniWoBEnvironment, chance: random.Random) -> None:
    """Use something that does not finish the task."""
    elements, _ = await _look(env)
    able = [each for each in elements if each.usable and each.kind in TOUCHED]
    if not able:
        return
    element = chance.choice(able)
    await env.click(*element.middle)
    if element.kind.startswith("text"):
        await env.type_text(Words(chance).value()[:14])
