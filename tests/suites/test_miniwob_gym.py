"""MiniWoB++ as Gymnasium sees it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.suites.miniwob_driver import needs_chromium

pytest.importorskip("gymnasium")

import gymnasium
from gymnasium.utils.env_checker import check_env

from holotron.actions.action import Click, DoubleClick, Drag, Press, Scroll, Type
from holotron.suites.miniwob.environment import SPACE
from holotron.suites.miniwob.gym import KEYS, KINDS, MiniWoBGym, MiniWoBVectorGym, action_space, to_action
from holotron.suites.miniwob.tasks import MiniWoBError, all_tasks
from holotron.suites.suite import TRAINING_SEEDS

pytestmark = needs_chromium


def do(kind: str, x: int = 0, y: int = 0, text: str = "", key: str = "Enter") -> dict[str, object]:
    return {"kind": KINDS.index(kind), "at": [x, y], "to": [9, 9], "key": KEYS.index(key), "text": text}


def test_elements_of_the_space_become_actions() -> None:
    x, y = SPACE.to_relative(3, 4)
    assert to_action(do("click", 3, 4)) == Click(x=x, y=y)
    assert to_action(do("double_click", 3, 4)) == DoubleClick(x=x, y=y)
    to_x, to_y = SPACE.to_relative(9, 9)
    assert to_action(do("drag", 3, 4)) == Drag(x=x, y=y, to_x=to_x, to_y=to_y)
    assert to_action(do("type", text="ab")) == Type(text="ab")
    assert to_action(do("press", key="Control+a")) == Press(keys="Control+A")
    assert to_action(do("scroll_up", 3, 4)) == Scroll(direction="up", amount=24, x=x, y=y)
    places = [(x, y) for x in range(160) for y in range(210)]
    assert [SPACE.from_relative(*SPACE.to_relative(*place)) for place in places] == places  # no pixel is missed
    assert action_space().contains(
        {name: np.array(v) if isinstance(v, list) else v for name, v in do("click", 159, 209, "a b!").items()}
    )
    for _ in range(100):
        to_action(action_space().sample())


def test_gymnasium_accepts_the_environment() -> None:
    env = MiniWoBGym("click-test-2", max_steps=5, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(env)
    first, info = env.reset(seed=12)
    assert (info["seed"], first["utterance"]) == (12, "Click button ONE.")
    assert np.array_equal(env.reset(seed=12)[0]["screenshot"], first["screenshot"])
    frame = env.render()
    assert frame is not None
    assert np.array_equal(frame, first["screenshot"])
    assert env.reset()[1]["seed"] in TRAINING_SEEDS
    steps = [env.step(do("wait")) for _ in range(5)]  # type: ignore[arg-type]
    assert [step[3] for step in steps] == [False, False, False, False, True]
    env.close()
    env.close()
    with pytest.raises(MiniWoBError, match="closed"):
        env.reset()


def test_gymnasium_makes_every_task() -> None:
    ids = {name for name in gymnasium.registry if name.startswith("holotron/")}
    assert ids == {f"holotron/miniwob.{task}" for task in all_tasks()}
    env = gymnasium.make("holotron/miniwob.click-test-2", max_steps=5)
    first, _ = env.reset(seed=12)
    assert first["utterance"] == "Click button ONE."
    seen, reward, done, truncated, _ = env.step(env.action_space.sample() | {"kind": KINDS.index("wait")})
    assert env.observation_space.contains(seen)
    assert (reward, done, truncated) == (0.0, False, False)
    env.close()
    pages = gymnasium.make_vec("holotron/miniwob.click-test", num_envs=2, vectorization_mode="vector_entry_point")
    assert pages.reset(seed=1)[0]["screenshot"].shape == (2, 210, 160, 3)
    pages.close()


def test_many_pages_step_together() -> None:
    env = MiniWoBVectorGym(["click-test", "unicode-test", "click-test"], max_steps=4)
    seen, info = env.reset(seed=5)
    assert info["seed"].tolist() == [5, 6, 7]
    assert seen["screenshot"].shape == (3, 210, 160, 3)
    assert env.observation_space.contains(seen)
    button = np.argwhere((seen["screenshot"][0, 52:] != 255).any(-1)).mean(0).astype(int)  # all that is not white
    actions = env.action_space.sample()
    actions["kind"][:] = [KINDS.index("click"), KINDS.index("wait"), KINDS.index("wait")]
    actions["at"][0] = [button[1], button[0] + 52]
    seen, rewards, done, truncated, _ = env.step(actions)
    assert (rewards.tolist(), done.tolist(), truncated.tolist()) == ([1, 0, 0], [True, False, False], [False] * 3)
    seen, rewards, done, truncated, _ = env.step(actions)  # the first page starts anew and ignores its action
    assert (rewards.tolist(), done.tolist()) == ([0, 0, 0], [False] * 3)
    assert env.observation_space.contains(seen)
    actions["kind"][:] = KINDS.index("wait")
    for _ in range(2):
        truncated = env.step(actions)[3]
    assert truncated.tolist() == [False, True, True]
    env.close()
    with pytest.raises(MiniWoBError, match="at least one task"):
        MiniWoBVectorGym([])
