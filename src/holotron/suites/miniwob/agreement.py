"""Do the same primitives on the same seeds earn the same reward here and in the package's own environment?"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

from holotron.suites.miniwob.actions import Click, Drag, Move, Press, Primitive, TypeText
from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.env import MiniWoBEnv
from holotron.suites.miniwob.errors import MiniWoBMissing
from holotron.suites.miniwob.pages import MiniWoB, find_browser
from holotron.suites.miniwob.random_policy import RandomPolicy
from holotron.suites.miniwob.scripted import Attempt, replay, solvable, solve

RANDOM_CLICKS = 4
# The package limits most episodes to ten seconds; what the actions leave of half of that is spent letting pages settle.
SECONDS_FOR_WAITING = 5.0
LONGEST_WAIT_MS = 500.0
MODIFIERS = {"Control": "C-", "Shift": "S-", "Alt": "A-", "Meta": "M-"}

Call = dict[str, Any]  # what the package's create_action takes


@dataclass(frozen=True)
class Comparison:
    """One list of primitives, played in both."""

    task: str
    seed: int
    kind: str
    primitives: int
    done: bool
    raw_reward: float
    package_done: bool
    package_raw_reward: float

    @property
    def agree(self) -> bool:
        return self.done == self.package_done and abs(self.raw_reward - self.package_raw_reward) < 1e-6


def package_calls(action: Primitive) -> list[Call] | None:
    """The package's actions for a primitive, or None where it has none (the wheel by pixels, other buttons)."""
    match action:
        case Click(x, y, "left", 1):
            return [{"action_type": "CLICK_COORDS", "coords": (x, y)}]
        case Click(x, y, "left", 2):
            return [{"action_type": "DBLCLICK_COORDS", "coords": (x, y)}]
        case Move(x, y):
            return [{"action_type": "MOVE_COORDS", "coords": (x, y)}]
        case Drag(points, steps):
            calls: list[Call] = [{"action_type": "MOUSEDOWN_COORDS", "coords": points[0]}]
            for (x0, y0), (x1, y1) in pairwise(points):
                for i in range(1, steps + 1):
                    place = (x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps)
                    calls.append({"action_type": "MOVE_COORDS", "coords": place})
            return [*calls, {"action_type": "MOUSEUP_COORDS", "coords": points[-1]}]
        case TypeText(text):
            return [{"action_type": "TYPE_TEXT", "text": text}]
        case Press(keys):
            return [{"action_type": "PRESS_KEY", "key": _package_key(keys)}]
    return None


def chromedriver() -> Path:
    found = shutil.which("chromedriver")
    if found is None:
        raise MiniWoBMissing("no chromedriver, which the package's own environment needs: apt install chromium-driver")
    return Path(found)


def play_in_package(task: str, episodes: Sequence[tuple[int, Sequence[Primitive]]]) -> Iterator[tuple[bool, float]]:
    """Play primitives in the package's Selenium environment, unchanged but for a reload before each episode."""
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
    """For each task: the scripted solution of each seed, and a few random clicks on each."""
    # The package's environment mostly sleeps, so several tasks can be compared at once.
    places = asyncio.Semaphore(at_once)

    async def one(task: str) -> list[Comparison]:
        async with places:
            found = await _compare_task(miniwob, task, seeds)
        progress(f"{task}: {sum(c.agree for c in found)} of {len(found)} agree")
        return found

    with _package_browser():
        async with MiniWoB(MiniWoBConfig()) as miniwob:
            return [c for found in await asyncio.gather(*map(one, tasks or solvable())) for c in found]


def report(compared: Sequence[Comparison], seconds: float) -> dict[str, Any]:
    scripted = [c for c in compared if c.kind == "scripted"]
    return {
        "what": "the same primitives on the same seeds here and in the miniwob package's Selenium environment",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "miniwob": version("miniwob"),
        "browser": find_browser().name,
        "tasks": len({c.task for c in compared}),
        "scripted_tasks_all_agree": len({c.task for c in scripted} - {c.task for c in scripted if not c.agree}),
        "episodes": len(compared),
        "agree": sum(c.agree for c in compared),
        "seconds": round(seconds, 1),
        "disagreements": [asdict(c) for c in compared if not c.agree],
        "comparisons": [asdict(c) for c in compared],
    }


async def write_agreement(path: Path, progress: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Compare every task that has a solver and write the result."""
    started = time.perf_counter()
    result = report(await compare(progress=progress), time.perf_counter() - started)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1) + "\n")
    partial.replace(path)
    return result


async def _compare_task(miniwob: MiniWoB, task: str, seeds: Sequence[int]) -> list[Comparison]:
    async with miniwob.env() as env:
        attempts = [("scripted", await solve(env, task, seed)) for seed in seeds]
        attempts += [("random", await _click_around(env, task, seed)) for seed in seeds]
    plans = [(kind, a) for kind, a in attempts if all(package_calls(action) is not None for action in a.actions)]
    episodes = [(attempt.seed, attempt.actions) for _, attempt in plans]
    theirs = await asyncio.to_thread(lambda: list(play_in_package(task, episodes)))
    return [
        Comparison(task, a.seed, kind, len(a.actions), a.result.done, a.result.raw_reward, done, reward)
        for (kind, a), (done, reward) in zip(plans, theirs, strict=True)
    ]


async def _click_around(env: MiniWoBEnv, task: str, seed: int) -> Attempt:
    """Random clicks: most end in a failure, and both must call it the same."""
    policy = RandomPolicy(seed)
    observation = await env.reset(task, seed)
    actions: list[Primitive] = []
    while len(actions) < RANDOM_CLICKS:
        action = policy(observation)
        if isinstance(action, Click):
            actions.append(action)
    return Attempt(task, seed, tuple(actions), await replay(env, task, seed, actions))


@contextmanager
def _package_browser() -> Iterator[None]:
    """The environment variables by which the package finds its browser."""
    wanted = {"MINIWOB_CHROME_BINARY": str(find_browser()), "MINIWOB_CHROMEDRIVER": str(chromedriver()), "TZ": "UTC"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _package_key(keys: str) -> str:
    *modifiers, key = keys.split("+")
    return "".join(MODIFIERS[modifier] for modifier in modifiers) + (key if len(key) == 1 else f"<{key}>")
