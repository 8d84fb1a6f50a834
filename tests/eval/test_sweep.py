"""Several protocols from one set of episodes, and the bundled policy in a real browser."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from holotron.agent.agent import Agent, Budget
from holotron.agent.in_process import loaded
from holotron.agent.policy_format import WIDGET_FORM, PolicyFormat, read_policy_format
from holotron.agent.prompts import NavigationForm
from holotron.eval.sweep import Episode, report, sweep
from holotron.model.errors import ModelError
from holotron.model.loading import find_checkpoint
from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.pool import miniwob_pool
from holotron.suites.miniwob.protocols import find_protocol
from holotron.suites.miniwob.tasks import as_task


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
    manner = read_policy_format(folder)
    assert manner == PolicyFormat(True, (1024, 768))

    async def play() -> int:
        solved = 0
        with loaded(folder, "cpu") as policy:
            async with miniwob_pool(MiniWoBConfig(pages=1)) as pool, pool.lease() as env:
                for task in ("click-test", "login-user", "enter-date", "choose-list", "click-dialog-2"):
                    await env.reset(as_task(task), 10**9 + 3)
                    agent = Agent(policy, env, form=WIDGET_FORM, budget=Budget(steps=6))
                    ending = await agent.run(env.instruction)
                    solved += ending.success is True
        return solved

    assert asyncio.run(play()) >= 4


def test_a_manner_is_read_or_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert read_policy_format(tmp_path) is None
    (tmp_path / "policy.json").write_text('{"terse": true}')
    manner = read_policy_format(tmp_path)
    assert manner is not None
    assert manner.form() == NavigationForm(manner.form().kinds, reasons=False, terse=True)
    (tmp_path / "policy.json").write_text("[]")
    with pytest.raises(ModelError, match=r"policy\.json cannot be read"):
        read_policy_format(tmp_path)
    with pytest.raises(ValueError, match="reasons=False"):
        NavigationForm(terse=True)
