"""Several protocols from one set of episodes, and the bundled policy in a real browser."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from holotron.agent.agent import Agent, Budget
from holotron.agent.in_process import loaded
from holotron.agent.policy_format import NANO, NANO_WIDGETS, format_of
from holotron.eval.sweep import Episode, report, sweep
from holotron.model.loading import find_checkpoint
from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.pages import MiniWoB
from holotron.suites.miniwob.protocols import find_protocol
from holotron.suites.miniwob.world import MiniWoBWorld


def test_one_episode_is_judged_by_each_protocol() -> None:
    loose, strict = (replace(find_protocol(name), tasks=("click-test", "circle-center")) for name in NAMES)
    seed = loose.seeds[0]
    played = [
        Episode("click-test", seed, 10, 1, 0.5),
        Episode("circle-center", seed, 10, 2, 0.95),
        Episode("click-test", loose.seeds[1], 10, 10, None),
        Episode("circle-center", loose.seeds[1], 10, 0, None, broken=True),
        Episode("click-test", seed, 30, 1, 1.0),  # of another protocol
    ]
    first, second = report(loose, played), report(strict, played)
    assert (first["successes"], first["episodes"], first["broken"]) == (2, 3, 1)
    assert (second["successes"], second["episodes"]) == (1, 3)
    assert first["tasks"] == {"click-test": 0.5, "circle-center": 1.0}


NAMES = ("browsergym-125", "strict-125")


def test_random_actions_are_played_and_counted() -> None:
    protocols = [replace(find_protocol(name), tasks=("click-test", "click-button")) for name in NAMES]
    result = sweep("random", protocols, pages=2, episodes_per_task=2)
    assert len(result["episodes"]) == 4
    for name in NAMES:
        assert result["protocols"][name]["episodes"] == 4
        assert result["protocols"][name]["broken"] == 0


def test_the_bundled_policy_solves_what_it_is_for() -> None:
    """Held-out seeds of tasks it is sure of: something broke on the way from weights to mouse if it fails at them."""
    folder = find_checkpoint("holotron-nano")
    assert format_of(folder) == NANO

    async def play() -> int:
        solved = 0
        with loaded(folder, "cpu") as policy:
            async with MiniWoB(MiniWoBConfig(pages=1)) as pool, pool.env() as env:
                for task in ("click-test", "login-user", "enter-date", "choose-list", "click-dialog-2"):
                    await env.reset(task, 10**9 + 3)
                    agent = Agent(policy, MiniWoBWorld(env), policy_format=NANO_WIDGETS, budget=Budget(steps=6))
                    ending = await agent.run(env.utterance)
                    solved += ending.success is True
        return solved

    assert asyncio.run(play()) >= 4
