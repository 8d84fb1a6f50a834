"""The scripted baseline solves, the random one does not, and both play only primitives."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from holotron.suites.miniwob.actions import Primitive, TypeText, from_json, to_json
from holotron.suites.miniwob.agreement import chromedriver, compare, package_calls
from holotron.suites.miniwob.bench import measure_steps
from holotron.suites.miniwob.env import MiniWoBEnv
from holotron.suites.miniwob.errors import MiniWoBError, MiniWoBMissing
from holotron.suites.miniwob.observation import MiniWoBObservation
from holotron.suites.miniwob.pages import MiniWoB
from holotron.suites.miniwob.protocols import is_success
from holotron.suites.miniwob.random_policy import RandomPolicy
from holotron.suites.miniwob.scripted import Attempt, replay, solvable, solve
from holotron.suites.miniwob.tasks import all_tasks
from tests.suites.miniwob_driver import needs_chromium, with_env, with_pages

AGREEMENT = Path(__file__).parents[2] / "benchmarks" / "results" / "miniwob-agreement.json"


def test_many_tasks_have_a_solver() -> None:
    assert len(solvable()) >= 50
    assert set(solvable()) <= set(all_tasks())


@needs_chromium
def test_scripts_solve_their_tasks() -> None:
    async def run(miniwob: MiniWoB) -> list[Attempt]:
        async def one(task: str) -> Attempt:
            async with miniwob.env() as env:
                return await solve(env, task, 77)

        return await asyncio.gather(*map(one, solvable()))

    for attempt in with_pages(run, pages=4):
        assert is_success("strict", attempt.task, attempt.result.raw_reward), attempt


@needs_chromium
def test_what_a_script_did_can_be_replayed() -> None:
    async def run(env: MiniWoBEnv) -> None:
        for task in ("login-user", "choose-list", "drag-box"):
            shown: list[tuple[MiniWoBObservation, Primitive]] = []
            attempt = await solve(env, task, 5, on_step=lambda seen, action: shown.append((seen, action)))  # noqa: B023
            assert [action for _, action in shown] == list(attempt.actions)
            assert len({seen.png for seen, _ in shown}) > 1
            stored = [from_json(json.loads(json.dumps(to_json(action)))) for action in attempt.actions]
            again = await replay(env, task, 5, stored)
            assert (again.done, again.raw_reward) == (True, attempt.result.raw_reward)
        with pytest.raises(MiniWoBError, match="no solver for 'text-editor'"):
            await solve(env, "text-editor", 0)

    with_env(run)


@needs_chromium
def test_random_actions_seldom_succeed() -> None:
    tasks = ("click-test", "enter-text", "login-user", "choose-list", "click-checkboxes", "use-spinner")

    async def run(miniwob: MiniWoB) -> list[tuple[str, float]]:
        async def one(task: str, seed: int) -> tuple[str, float]:
            async with miniwob.env() as env:
                policy, seen = RandomPolicy(seed), await env.reset(task, seed)
                for _ in range(6):
                    seen, result = await env.step(policy(seen))
                    if result.done:
                        break
                return task, result.raw_reward if result.done else -1.0

        return await asyncio.gather(*(one(task, seed) for task in tasks for seed in range(3)))

    rewards = with_pages(run, pages=4)
    assert all(-1 <= reward <= 1 for _, reward in rewards)
    solved = [is_success("strict", task, reward) for task, reward in rewards]
    assert sum(solved) / len(solved) < 0.5


def test_the_random_policy_is_seeded() -> None:
    seen = MiniWoBObservation(b"", 160, 210, 'Enter "Bo" into the field.')
    one, same, other = RandomPolicy(1), RandomPolicy(1), RandomPolicy(2)
    actions = [one(seen) for _ in range(200)]
    assert actions == [same(seen) for _ in range(200)]
    assert actions != [other(seen) for _ in range(200)]
    assert "Bo" in {action.text for action in actions if isinstance(action, TypeText)}
    assert [action for action in actions if package_calls(action) is None and to_json(action)["do"] != "scroll"] == []


@needs_chromium
def test_rewards_agree_with_the_packages_own_environment() -> None:
    try:
        chromedriver()
    except MiniWoBMissing as missing:
        pytest.skip(str(missing))
    compared = asyncio.run(compare(["enter-text", "choose-list"], seeds=[0]))
    assert len(compared) == 4
    assert [comparison for comparison in compared if not comparison.agree] == []


def test_the_committed_agreement_is_complete() -> None:
    result = json.loads(AGREEMENT.read_text())
    assert result["agree"] == result["episodes"] == len(result["comparisons"])
    assert result["scripted_tasks_all_agree"] >= 20
    assert {comparison["package_raw_reward"] > 0 for comparison in result["comparisons"]} == {True, False}


@needs_chromium
def test_the_benchmark_counts_steps() -> None:
    rate = asyncio.run(measure_steps(pages=2, seconds=1.0))
    assert rate.steps > 5
    assert rate.steps_per_second == pytest.approx(rate.steps / rate.seconds, rel=0.1)
    assert rate.resets_per_second > 0
    json.dumps(rate.to_json())
