"""Where a task stands when an episode begins: to be done, done already, or such that it cannot be done."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

from holotron.actions.action import Answer
from holotron.suites.pages.environment import PageEnvironment
from holotron.suites.pages.task import is_held_out
from holotron.suites.pages.teacher import PageTeacher
from holotron.suites.suite import HELD_OUT_SEEDS, TRAINING_SEEDS

Start = Literal["fresh", "done", "impossible"]
SHARES: dict[Start, float] = {"fresh": 0.88, "done": 0.06, "impossible": 0.06}
# Seeds for evaluation from here on never begin fresh.
STOPPING_FROM = len(HELD_OUT_SEEDS) // 2
LONGEST = 30  # steps
LACK = Path(__file__).with_name("lack.js").read_text(encoding="utf-8")


def draw_start(name: str, seed: int) -> Start:
    """How the task of a seed begins. What protocols measured before always begins fresh."""
    chance = random.Random(f"start/{name}/{seed}")
    if seed in TRAINING_SEEDS and not is_held_out(name):
        return chance.choices(list(SHARES), list(SHARES.values()))[0]
    return chance.choice(("done", "impossible")) if seed >= HELD_OUT_SEEDS[STOPPING_FROM] else "fresh"


async def put_at(env: PageEnvironment, start: Start) -> None:
    """Bring the task of a fresh page there; a question, or a page on which nothing can be missed, stays as it is."""
    if start == "impossible":
        env.impossible = bool(await env.call(LACK, env.instruction))
    if start != "done" or not await env.can_tell():
        return
    teacher = PageTeacher(env)
    for _ in range(LONGEST):
        action = await teacher.ask()
        if action is None or isinstance(action, Answer):
            break
        await env.act(action)
    await env.status()
