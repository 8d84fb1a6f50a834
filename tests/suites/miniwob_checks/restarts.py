"""Which tasks play in a page that had an episode before exactly as in a page just loaded? Answers by playing both."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from holotron.actions.action import Action
from holotron.agent.baselines import random_action
from holotron.agent.teacher import TeacherFailed
from holotron.env.errors import ActionFailed
from holotron.episodes.files import write_whole
from holotron.suites.miniwob.environment import MiniWoBConfig, MiniWoBEnvironment
from holotron.suites.miniwob.pool import miniwob_pool
from holotron.suites.miniwob.suite import MiniWoBSuite
from holotron.suites.miniwob.tasks import as_task
from tests.suites.miniwob_checks.check import require_chromium

STATE = Path(__file__).with_name("page_state.js")
Kind = Literal["oracle", "random", "timed out"]
MOST_STEPS: dict[Kind, int] = {"oracle": 12, "random": 6, "timed out": 1}
# What is played one after another in a page: every kind of end comes before every kind of episode.
KINDS: tuple[Kind, ...] = ("oracle", "random", "oracle", "oracle", "timed out", "random", "random", "oracle")
FIRST_SEED, SEEDS = 2_000_000_000, 4  # neither trained nor evaluated on
TRIES = 3  # what moves by itself can look different in two pages that were just loaded


@dataclass(frozen=True)
class Trace:
    """An episode from outside: screenshots, what the page held when it was first quiet, how it ended."""

    actions: tuple[Action, ...]
    screens: tuple[str, ...]
    state: dict[str, Any]
    ended: tuple[bool, str, str]
    restarted: bool

    def differences(self, other: Trace) -> list[str]:
        pairs = enumerate(zip(self.screens, other.screens, strict=False))
        found = [f"screen {number}" for number, (one, two) in pairs if one != two]
        found += [key for key in self.state if self.state[key] != other.state[key]]
        return found + ([] if self.ended == other.ended else ["end"])


async def play(
    env: MiniWoBEnvironment, task: str, seed: int, kind: Kind, given: Sequence[Action] | None = None
) -> Trace:
    """One episode by actions that are given, or by those of the oracle or of chance. The page must know STATE."""
    images = [(await env.reset(as_task(task), seed)).image]
    await env.result()
    restarted, state = await env.evaluate("[holotron.played === true, (holotron.played = true, page_state())]")
    draw, actions = random.Random(f"{task}/{seed}"), list[Action]()
    for index in range(MOST_STEPS[kind]):
        if kind == "timed out":
            await env.evaluate("core.endEpisode(-1, false, 'timed out')")
        else:
            action = await _chosen(env, kind, draw) if given is None else next(iter(given[index:]), None)
            if action is None:
                break
            actions.append(action)
            with suppress(ActionFailed):
                await env.act(action)
        result = await env.result()
        images.append((await env.observe()).image)
        if result.done:
            break
    result = await env.result()
    screens = tuple(hashlib.sha256(image).hexdigest()[:16] for image in images)
    return Trace(tuple(actions), screens, state, (result.done, str(result.raw_reward), result.reason), restarted)


async def _chosen(env: MiniWoBEnvironment, kind: Kind, draw: random.Random) -> Action | None:
    suite = MiniWoBSuite()
    if kind == "random" or env.task not in suite.taught():
        return random_action(draw)
    with suppress(TeacherFailed):
        return await suite.teacher(env).ask()
    return None


async def compare(
    fresh: MiniWoBEnvironment, kept: MiniWoBEnvironment, task: str, kinds: Sequence[Kind] = KINDS
) -> dict[str, Any]:
    """The same episodes of a task in a page that is loaded for each and in one that is kept.

    different: of each episode that was not the same in any of so many tries, what was not. unsteady: how many of them
    were not the same in pages that were just loaded, either.
    """
    fresh.config = replace(fresh.config, restarts=frozenset())
    kept.config = replace(kept.config, restarts=frozenset([task]))
    restarted, unsteady, different = 0, 0, []
    for number, kind in enumerate(kinds):
        seed = FIRST_SEED + number % SEEDS
        one = await play(fresh, task, seed, kind)
        loads, found = [one], ["not tried"]
        for _ in range(TRIES):
            two = await play(kept, task, seed, kind, one.actions)
            restarted += two.restarted and found == ["not tried"]
            found = min((load.differences(two) for load in loads), key=len)
            if not found:
                break
            loads.append(await play(fresh, task, seed, kind, one.actions))
            if not one.differences(loads[-1]):
                break
        if found:
            unsteady += any(one.differences(load) for load in loads[1:])
            different.append({"seed": seed, "kind": kind, "what": found})
    return {"task": task, "restarted": restarted, "unsteady": unsteady, "different": different}


async def write_restarts(
    path: Path, tasks: Sequence[str], at_once: int = 1, progress: Callable[[str], None] = lambda _: None
) -> set[str]:
    """Compare tasks, so many at once, and write the result. Those that were not the same."""
    found: dict[str, dict[str, Any]] = {}
    async with miniwob_pool(MiniWoBConfig(pages=2 * at_once)) as pool:
        await (await pool.contexts[0].open()).context.add_init_script(path=STATE)
        left = iter(tasks)

        async def some(fresh: MiniWoBEnvironment, kept: MiniWoBEnvironment) -> None:
            for task in left:
                found[task] = await compare(fresh, kept, task)
                progress(json.dumps(found[task]))

        await asyncio.gather(*(some(*pool.envs[2 * number : 2 * number + 2]) for number in range(at_once)))
    moved = {task for task in found if found[task]["different"]}
    result = {
        "what": "the same episodes in a page that is loaded for each and in one that is restarted: screenshots byte for"
        " byte, elements, fields, handlers, the task's variables, rewards",
        "command": "python -m tests.suites.miniwob_checks restarts --out FILE",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "miniwob": version("miniwob"),
        "browser": require_chromium().name,
        "episodes_per_task": len(KINDS),
        "same": len(found) - len(moved),
        "tasks": [found[task] for task in tasks],
    }
    write_whole(path, f"{json.dumps(result, indent=1)}\n".encode(), sync=False)
    return moved
