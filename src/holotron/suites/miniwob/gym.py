"""MiniWoB++ for Gymnasium: one page, or many stepped together. Needs the `eval` extra.

Importing this registers every task: `gymnasium.make("holotron/miniwob.click-test")`, and `gymnasium.make_vec`.
"""

from __future__ import annotations

import asyncio
import io
import string
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray
from PIL import Image

from holotron.actions.action import Action, Click, DoubleClick, Drag, Hover, Press, Scroll, Type, Wait
from holotron.env.environment import Observation
from holotron.suites.miniwob.environment import SPACE, MiniWoBConfig, MiniWoBEnvironment, MiniWoBResult
from holotron.suites.miniwob.pool import MiniWoBPool, miniwob_pool
from holotron.suites.miniwob.tasks import BENCHMARK, HEIGHT, WIDTH, MiniWoBError, all_tasks, as_task, find_task
from holotron.suites.suite import TRAINING_SEEDS

T = TypeVar("T")
Arrays = dict[str, Any]

TYPED = string.ascii_letters + string.digits + string.punctuation + " "
SHOWN = TYPED + "Öé♥プヘル取定消确"  # one task writes its instruction in three scripts
LONGEST_UTTERANCE = 512
LONGEST_TEXT = 64
SCROLL_PERCENT = 24  # of the height: about 50 pixels

KINDS = ("click", "double_click", "right_click", "move", "drag", "type", "press", "scroll_down", "scroll_up", "wait")
KEYS = (
    *("Enter", "Tab", "Escape", "Backspace", "Delete", "Space", "Home", "End", "PageUp", "PageDown"),
    *("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"),
    *("Control+a", "Control+c", "Control+x", "Control+v", "Shift+Tab", "Control+Home", "Control+End"),
)


def observation_space() -> spaces.Dict:
    return spaces.Dict(
        {
            "screenshot": spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8),
            "utterance": spaces.Text(LONGEST_UTTERANCE, min_length=0, charset=SHOWN),
        }
    )


def action_space() -> spaces.Dict:
    """`kind` is an index into KINDS; of the rest each kind uses what it needs: `at` and `to` are pixels, `key` an index
    into KEYS, `text` what `type` types."""
    return spaces.Dict(
        {
            "kind": spaces.Discrete(len(KINDS)),
            "at": spaces.MultiDiscrete([WIDTH, HEIGHT]),
            "to": spaces.MultiDiscrete([WIDTH, HEIGHT]),
            "key": spaces.Discrete(len(KEYS)),
            "text": spaces.Text(LONGEST_TEXT, min_length=0, charset=TYPED),
        }
    )


def to_action(given: Mapping[str, Any]) -> Action:
    """The action that an element of `action_space` stands for."""
    x, y = SPACE.to_relative(*given["at"])
    kind = KINDS[int(given["kind"])]
    match kind:
        case "click":
            return Click(x=x, y=y)
        case "double_click":
            return DoubleClick(x=x, y=y)
        case "right_click":
            return Click(x=x, y=y, button="right")
        case "move":
            return Hover(x=x, y=y)
        case "drag":
            to_x, to_y = SPACE.to_relative(*given["to"])
            return Drag(x=x, y=y, to_x=to_x, to_y=to_y)
        case "type":
            return Type(text=given["text"])
        case "press":
            return Press(keys=KEYS[int(given["key"])])
        case "scroll_down" | "scroll_up":
            return Scroll(direction="down" if kind == "scroll_down" else "up", amount=SCROLL_PERCENT, x=x, y=y)
    return Wait(seconds=0)


class MiniWoBGym(gymnasium.Env[Arrays, Arrays]):
    """One task. `reset(seed=s)` plays the task's seed s; `reset()` one drawn from the training seeds.

    The reward is 0 until the episode ends and the raw reward then.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  Gymnasium's own declaration

    def __init__(
        self,
        task: str,
        max_steps: int | None = None,
        config: MiniWoBConfig | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.task = find_task(task).name
        self.max_steps = max_steps
        self.render_mode = render_mode
        self.observation_space = observation_space()
        self.action_space = action_space()
        self._steps = 0
        self._seen: Arrays = {}
        self._pages = _Pages(replace(config or MiniWoBConfig(), pages=1))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Arrays, Arrays]:
        super().reset(seed=seed)
        played = _draw(self.np_random) if seed is None else seed
        self._steps = 0
        self._seen = self._pages.run(_reset(self._pages.envs[0], self.task, played))
        return self._seen, {"task": self.task, "seed": played}

    def step(self, action: Arrays) -> tuple[Arrays, float, bool, bool, Arrays]:
        self._seen, result = self._pages.run(_step(self._pages.envs[0], action))
        self._steps += 1
        truncated = not result.done and self.max_steps is not None and self._steps >= self.max_steps
        info = {"raw_reward": result.raw_reward, "reward": result.reward, "reason": result.reason}
        return self._seen, result.raw_reward if result.done else 0.0, result.done, truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        return self._seen.get("screenshot") if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        self._pages.close()


class MiniWoBVectorGym(VectorEnv[Arrays, Arrays, NDArray[Any]]):
    """One page per task in `tasks` (names may repeat), all stepped at the same time.

    A page whose episode ended is reset by the next step, which ignores its action and gives no reward.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, tasks: Sequence[str], max_steps: int | None = None, config: MiniWoBConfig | None = None) -> None:
        if not tasks:
            raise MiniWoBError("MiniWoBVectorGym needs at least one task")
        self.tasks = [find_task(task).name for task in tasks]
        self.num_envs = len(self.tasks)
        self.max_steps = max_steps
        self.single_observation_space = observation_space()
        self.single_action_space = action_space()
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._steps = np.zeros(self.num_envs, np.int64)
        self._over = np.ones(self.num_envs, np.bool_)
        self._pages = _Pages(replace(config or MiniWoBConfig(), pages=self.num_envs))

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Arrays, Arrays]:
        """An int s plays seeds s, s + 1, … on the pages; None draws training seeds."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        given = seed if isinstance(seed, list) else [None if seed is None else seed + i for i in range(self.num_envs)]
        seeds = [_draw(self.np_random) if one is None else one for one in given]
        self._steps[:] = 0
        self._over[:] = False
        envs = self._pages.envs
        seen = self._pages.together(_reset(env, task, s) for env, task, s in zip(envs, self.tasks, seeds, strict=True))
        return _stack(seen), {"seed": np.array(seeds)}

    def step(self, actions: Arrays) -> tuple[Arrays, NDArray[Any], NDArray[Any], NDArray[Any], Arrays]:
        work = [self._advance(index, action) for index, action in enumerate(iterate(self.action_space, actions))]
        seen, results = zip(*self._pages.together(work), strict=True)
        fresh = self._over.copy()
        self._steps = np.where(fresh, 0, self._steps + 1)
        done = np.array([result.done for result in results])
        rewards = np.array([result.raw_reward if result.done else 0.0 for result in results])
        truncated = ~done & (self._steps >= (self.max_steps or np.inf))
        self._over = done | truncated
        return _stack(seen), rewards, done, truncated, {"reason": np.array([result.reason for result in results])}

    def close_extras(self, **kwargs: Any) -> None:
        if pages := getattr(self, "_pages", None):  # absent where making it failed
            pages.close()

    async def _advance(self, index: int, action: Arrays) -> tuple[Arrays, MiniWoBResult]:
        env = self._pages.envs[index]
        if self._over[index]:
            return await _reset(env, self.tasks[index], _draw(self.np_random)), MiniWoBResult(done=False)
        return await _step(env, action)


def same_task(num_envs: int, task: str, **options: Any) -> MiniWoBVectorGym:
    """One task on so many pages, for `gymnasium.make_vec`."""
    return MiniWoBVectorGym([task] * num_envs, **options)


for _name in all_tasks():
    gymnasium.register(
        f"holotron/{BENCHMARK}.{_name}",
        f"{__name__}:MiniWoBGym",
        kwargs={"task": _name},
        vector_entry_point=f"{__name__}:same_task",
    )


class _Pages:
    """A pool of pages with an event loop of its own in a thread, for callers that have none."""

    def __init__(self, config: MiniWoBConfig) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="miniwob", daemon=True)
        self._thread.start()
        self._pool: MiniWoBPool | None = None
        try:
            self._pool = self.run(miniwob_pool(config).__aenter__())
        except BaseException:
            self.close()
            raise

    @property
    def envs(self) -> list[MiniWoBEnvironment]:
        if self._pool is None:
            raise MiniWoBError("this environment is closed; make another")
        return self._pool.envs

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def together(self, work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """All of it, even if some fails: nothing may still be going on in a page when the caller hears of a failure."""

        async def gather() -> list[T | BaseException]:
            return await asyncio.gather(*work, return_exceptions=True)

        answers = self.run(gather())
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return cast(list[T], answers)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        pool, self._pool = self._pool, None
        if pool is not None:
            self.run(pool.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _draw(chance: np.random.Generator) -> int:
    """A training seed."""
    return int(chance.integers(len(TRAINING_SEEDS)))


def _to_arrays(observation: Observation, instruction: str) -> dict[str, Any]:
    with Image.open(io.BytesIO(observation.image)) as image:
        pixels = np.asarray(image.convert("RGB"))
    return {"screenshot": pixels, "utterance": instruction[:LONGEST_UTTERANCE]}


async def _reset(env: MiniWoBEnvironment, task: str, seed: int) -> Arrays:
    observation = await env.reset(as_task(task), seed)
    return _to_arrays(observation, env.instruction)


async def _step(env: MiniWoBEnvironment, action: Arrays) -> tuple[Arrays, MiniWoBResult]:
    observation, result = await env.step(to_action(action))
    return _to_arrays(observation, env.instruction), result


def _stack(arrays: Sequence[Arrays]) -> Arrays:
    return {
        "screenshot": np.stack([array["screenshot"] for array in arrays]),
        "utterance": tuple(array["utterance"] for array in arrays),
    }
