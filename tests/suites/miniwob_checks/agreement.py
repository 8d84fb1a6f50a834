"""Do the same actions on the same seeds earn the same reward here and in the package's own environment?"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holotron.actions.action import Action, Click, DoubleClick, Drag, Hover, Press, Select, Type
from holotron.actions.keys import playwright_keys
from holotron.agent.agent import Agent, Budget
from holotron.agent.teacher import Supervision
from holotron.env.browser.local_page import DRAG_STEPS
from holotron.env.environment import TaskStatus
from holotron.env.executor import CLEAR_KEYS
from holotron.episodes.files import write_whole
from holotron.suites.miniwob.environment import SPACE, MiniWoBEnvironment
from holotron.suites.miniwob.pool import MiniWoBPool, miniwob_pool
from holotron.suites.miniwob.suite import MiniWoBSuite
from holotron.suites.miniwob.tasks import MiniWoBMissing, as_task
from tests.suites.miniwob_checks.check import require_chromium

RANDOM_CLICKS = 4
# The package limits most episodes to ten seconds; what the actions leave of half of that is spent letting pages settle.
SECONDS_FOR_WAITING = 5.0
LONGEST_WAIT_MS = 500.0
MODIFIERS = {"Control": "C-", "Shift": "S-", "Alt": "A-", "Meta": "M-"}

Call = dict[str, Any]  # what the package's create_action takes
Played = tuple[tuple[Action, ...], TaskStatus]  # actions, and how they ended here


@dataclass(frozen=True)
class Comparison:
    """One list of actions, played in both. kind: "scripted" by the oracle, or "random"."""

    task: str
    seed: int
    kind: str
    actions: int
    done: bool
    raw_reward: float
    package_done: bool
    package_raw_reward: float

    @property
    def agree(self) -> bool:
        return self.done == self.package_done and abs(self.raw_reward - self.package_raw_reward) < 1e-6


def package_calls(action: Action) -> list[Call] | None:
    """The package's actions for one of ours, or None where it has none (the wheel by pixels, other buttons)."""
    match action:
        case Click(button="left"):
            return [_mouse("CLICK", action.x, action.y)]
        case DoubleClick():
            return [_mouse("DBLCLICK", action.x, action.y)]
        case Hover():
            return [_mouse("MOVE", action.x, action.y)]
        case Drag():
            (x0, y0), (x1, y1) = SPACE.from_relative(action.x, action.y), SPACE.from_relative(action.to_x, action.to_y)
            parts = [part / DRAG_STEPS for part in range(1, DRAG_STEPS + 1)]
            places = [(x0 + (x1 - x0) * part, y0 + (y1 - y0) * part) for part in parts]
            moves: list[Call] = [{"action_type": "MOVE_COORDS", "coords": place} for place in places]
            return [_mouse("MOUSEDOWN", action.x, action.y), *moves, _mouse("MOUSEUP", action.to_x, action.to_y)]
        case Type():
            calls = [] if action.x is None or action.y is None else [_mouse("CLICK", action.x, action.y)]
            calls += [_key(keys) for keys in CLEAR_KEYS] if action.clear else []
            calls += [_text(action.text)] if action.text else []
            return calls + ([_key("Enter")] if action.enter else [])
        case Select():
            return [_mouse("CLICK", action.x, action.y), _text(action.option), _key("Enter")]
        case Press():
            return [_key(action.keys)] * action.repeat
    return None


def chromedriver() -> Path:
    found = shutil.which("chromedriver")
    if found is None:
        raise MiniWoBMissing("no chromedriver, which the package's own environment needs: apt install chromium-driver")
    return Path(found)


def play_in_package(task: str, episodes: Sequence[tuple[int, Sequence[Action]]]) -> Iterator[tuple[bool, float]]:
    """Play actions in the package's Selenium environment, unchanged but for a reload before each episode."""
    # By name, because the package has no types to check against.
    actions, environment, rewards = (import_module(f"miniwob.{name}") for name in ("action", "environment", "reward"))
    plans = [(seed, [call for action in played for call in package_calls(action) or ()]) for seed, played in episodes]
    keys = sorted({call["key"] for _, calls in plans for call in calls if "key" in call})
    space = actions.ActionSpaceConfig(action_types=list(actions.ActionTypes), allowed_keys=keys or ["<Enter>"])
    env = environment.MiniWoBEnvironment(
        subdomain=task, action_space_config=space, reward_processor=rewards.get_raw_reward, refresh_freq=1
    )
    try:
        for seed, calls in plans:
            env.instance.wait_ms = min(LONGEST_WAIT_MS, SECONDS_FOR_WAITING * 1000 / max(1, len(calls)))
            env.reset(seed=seed, options={"record_screenshots": False})
            done, reward = False, 0.0
            for call in calls:
                if done:
                    break
                named = call | ({"key": keys.index(call["key"])} if "key" in call else {})
                _, reward, done, _, _ = env.step(env.create_action(**named))
            yield done, float(reward)
    finally:
        env.close()


async def compare(
    tasks: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    at_once: int = 3,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Comparison]:
    """For each task: the oracle's solution of each seed, and a few random clicks on each."""
    # The package's environment mostly sleeps, so several tasks can be compared at once.
    places = asyncio.Semaphore(at_once)

    async def one(task: str) -> list[Comparison]:
        async with places:
            found = await _compare_task(pool, task, seeds)
        progress(f"{task}: {sum(c.agree for c in found)} of {len(found)} agree")
        return found

    with _package_browser():
        async with miniwob_pool() as pool:
            return [c for found in await asyncio.gather(*map(one, MiniWoBSuite().select(tasks or ()))) for c in found]


async def write_agreement(path: Path, progress: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Compare every task that has an oracle and write the result."""
    started = time.perf_counter()
    compared = await compare(progress=progress)
    scripted = [c for c in compared if c.kind == "scripted"]
    result = {
        "what": "the same actions on the same seeds here and in the miniwob package's Selenium environment",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "miniwob": version("miniwob"),
        "browser": require_chromium().name,
        "tasks": len({c.task for c in compared}),
        "scripted_tasks_all_agree": len({c.task for c in scripted} - {c.task for c in scripted if not c.agree}),
        "episodes": len(compared),
        "agree": sum(c.agree for c in compared),
        "seconds": round(time.perf_counter() - started, 1),
        "disagreements": [asdict(c) for c in compared if not c.agree],
        "comparisons": [asdict(c) for c in compared],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, f"{json.dumps(result, indent=1)}\n".encode(), sync=False)
    return result


async def _compare_task(pool: MiniWoBPool, task: str, seeds: Sequence[int]) -> list[Comparison]:
    async with pool.lease() as env:
        played = [("scripted", seed, *await _by_oracle(env, task, seed)) for seed in seeds]
        played += [("random", seed, *await _click_around(env, task, seed)) for seed in seeds]
    ours = [each for each in played if all(package_calls(action) is not None for action in each[2])]
    episodes = [(seed, actions) for _, seed, actions, _ in ours]
    theirs = await asyncio.to_thread(lambda: list(play_in_package(task, episodes)))
    return [
        Comparison(task, seed, kind, len(actions), status.done, status.reward or 0.0, done, reward)
        for (kind, seed, actions, status), (done, reward) in zip(ours, theirs, strict=True)
    ]


async def _by_oracle(env: MiniWoBEnvironment, task: str, seed: int) -> Played:
    await env.reset(as_task(task, seed), seed)
    agent = Agent(None, env, budget=Budget(steps=30), supervision=Supervision(MiniWoBSuite().teacher(env)))
    ending = await agent.run(env.instruction)
    actions = tuple(step.action for step in agent.steps if step.action is not None)
    return actions, TaskStatus(ending.reason == "done", ending.reward)


async def _click_around(env: MiniWoBEnvironment, task: str, seed: int) -> Played:
    """Random clicks below the instruction: most end in a failure, and both must call it the same."""
    draw = random.Random(seed)
    actions = tuple(Click(x=draw.randint(0, 1000), y=draw.randint(240, 1000)) for _ in range(RANDOM_CLICKS))
    await env.reset(as_task(task), seed)
    for action in actions:
        await env.act(action)
        await env.status()
    return actions, await env.status()


@contextmanager
def _package_browser() -> Iterator[None]:
    """The environment variables by which the package finds its browser."""
    before = dict(os.environ)
    browser, driver = str(require_chromium()), str(chromedriver())
    os.environ.update(MINIWOB_CHROME_BINARY=browser, MINIWOB_CHROMEDRIVER=driver, TZ="UTC")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _mouse(what: str, x: int, y: int) -> Call:
    return {"action_type": f"{what}_COORDS", "coords": SPACE.from_relative(x, y)}


def _text(text: str) -> Call:
    return {"action_type": "TYPE_TEXT", "text": text}


def _key(keys: str) -> Call:
    *modifiers, key = playwright_keys(keys).split("+")
    name = key if len(key) == 1 else f"<{key}>"
    return {"action_type": "PRESS_KEY", "key": "".join(MODIFIERS[modifier] for modifier in modifiers) + name}
