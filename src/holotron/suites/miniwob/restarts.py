"""Which tasks play in a page that had an episode before exactly as in a page just loaded? Answers by playing both."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from holotron.actions.action import Action
from holotron.agent.baselines import random_action
from holotron.agent.teacher import TeacherFailed
from holotron.env.errors import ActionFailed
from holotron.suites.miniwob.environment import MiniWoBConfig, MiniWoBEnvironment
from holotron.suites.miniwob.pool import miniwob_pool
from holotron.suites.miniwob.suite import MiniWoBSuite
from holotron.suites.miniwob.tasks import as_task

STATE = Path(__file__).with_name("page_state.js")
MOST_STEPS = {"oracle": 12, "random": 6, "timed out": 1}
FIRST_SEED, SEEDS = 2_000_000_000, 4  # neither trained nor evaluated on
Kind = Literal["oracle", "random", "timed out"]
# What is played one after another in a page: every kind of end comes before every kind of beginning.
KINDS: tuple[Kind, ...] = ("oracle", "random", "oracle", "oracle", "timed out", "random", "random", "oracle")


@dataclass(frozen=True)
class Trace:
    """An episode from outside: screenshots, what the page held at the beginning, where it stood at the end."""

    actions: tuple[Action, ...]
    screens: tuple[str, ...]
    state: dict[str, Any]
    ended: tuple[bool, str, str]
    restarted: bool

    def differences(self, other: Trace) -> list[str]:
        pairs = enumerate(zip(self.screens, other.screens, strict=False))
        found = [f"screen {number}" for number, (one, two) in pairs if one != two]
        found += [
            f"state: {key}: {_first(self.state[key], other.state[key])}"
            for key in self.state
            if self.state[key] != other.state[key]
        ]
        return found + ([] if self.ended == other.ended else [f"ended {self.ended}, {other.ended}"])


def _first(one: Any, two: Any) -> str:
    if isinstance(one, list):
        return f"-{[x for x in one if x not in two][:3]} +{[x for x in two if x not in one][:3]}"
    if isinstance(one, dict):
        return str(
            [(k, str(one.get(k))[:150], str(two.get(k))[:150]) for k in {*one, *two} if one.get(k) != two.get(k)][:3]
        )
    at = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), 0)
    return f"{one[max(0, at - 60) : at + 80]!r} {two[max(0, at - 60) : at + 80]!r}"


async def play(
    env: MiniWoBEnvironment, task: str, seed: int, kind: Kind, given: Sequence[Action] | None = None
) -> Trace:
    """One episode by actions that are given, or by those of the oracle or of chance."""
    images = [(await env.reset(as_task(task), seed)).image]
    restarted = await env.evaluate("window.played === true")
    state = await env.evaluate("window.played = true, page_state()")
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
    try:
        return await suite.teacher(env).ask()
    except TeacherFailed:
        return None


async def compare(fresh: MiniWoBEnvironment, kept: MiniWoBEnvironment, task: str) -> dict[str, Any]:
    """The same episodes of a task in a page that is loaded for each and in one that is kept."""
    fresh.config = replace(fresh.config, restarts=frozenset())
    kept.config = replace(kept.config, restarts=frozenset([task]))
    restarted, unsteady, different = 0, [], []
    for number, kind in enumerate(KINDS):
        seed = FIRST_SEED + number % SEEDS
        one = await play(fresh, task, seed, kind)
        two = await play(kept, task, seed, kind, one.actions)
        restarted += two.restarted
        if found := one.differences(two):
            # What two loads do not have in common either says nothing about restarts.
            noise = one.differences(await play(fresh, task, seed, kind, one.actions))
            seen = {"seed": seed, "kind": kind, "restarted": two.restarted, "found": found, "two_loads": noise}
            (unsteady if noise else different).append(seen)
    return {"task": task, "episodes": len(KINDS), "restarted": restarted, "different": different, "unsteady": unsteady}


async def compare_all(
    tasks: Sequence[str], at_once: int = 1, progress: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    async with miniwob_pool(MiniWoBConfig(pages=2 * at_once)) as pool:
        await (await pool.contexts[0].open()).context.add_init_script(path=STATE)
        left, found = iter(tasks), list[dict[str, Any]]()

        async def some(fresh: MiniWoBEnvironment, kept: MiniWoBEnvironment) -> None:
            for task in left:
                found.append(await compare(fresh, kept, task))
                progress(json.dumps(found[-1]))

        await asyncio.gather(*(some(*pool.envs[2 * number : 2 * number + 2]) for number in range(at_once)))
        return sorted(found, key=lambda each: str(each["task"]))


if __name__ == "__main__":
    import sys

    from holotron.suites.miniwob.tasks import all_tasks

    names = sys.argv[2:] or list(all_tasks())
    out = asyncio.run(compare_all(names, 2, lambda line: print(line, flush=True)))
    Path(sys.argv[1]).write_text(json.dumps(out))
