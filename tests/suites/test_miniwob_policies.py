"""The package's own environment agrees, random actions do not solve, and steps are counted."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from holotron.actions.action import Click, Drag, Scroll, Type
from holotron.agent.baselines import random_action
from holotron.suites.miniwob.pool import MiniWoBPool
from holotron.suites.miniwob.tasks import MiniWoBMissing, as_task
from tests.suites.miniwob_checks.agreement import chromedriver, compare, package_calls
from tests.suites.miniwob_driver import needs_chromium, with_pages

AGREEMENT = Path(__file__).parents[2] / "benchmarks" / "results" / "miniwob-agreement.json"


def test_actions_have_a_counterpart_in_the_package() -> None:
    typed = package_calls(Type(text="Bo", x=500, y=500, clear=True, enter=True))
    assert typed == [
        {"action_type": "CLICK_COORDS", "coords": (80, 105)},
        {"action_type": "PRESS_KEY", "key": "C-a"},
        {"action_type": "PRESS_KEY", "key": "<Delete>"},
        {"action_type": "TYPE_TEXT", "text": "Bo"},
        {"action_type": "PRESS_KEY", "key": "<Enter>"},
    ]
    dragged = package_calls(Drag(x=0, y=0, to_x=500, to_y=500))
    assert dragged is not None
    assert [call["action_type"] for call in dragged] == ["MOUSEDOWN_COORDS", *["MOVE_COORDS"] * 5, "MOUSEUP_COORDS"]
    assert dragged[-2]["coords"] == dragged[-1]["coords"] == (80, 105)
    assert package_calls(Scroll(direction="down")) is package_calls(Click(x=1, y=1, button="right")) is None


@needs_chromium
def test_random_actions_seldom_succeed() -> None:
    tasks = ("click-test", "enter-text", "login-user", "choose-list", "click-checkboxes", "use-spinner")

    async def run(pool: MiniWoBPool) -> list[bool]:
        async def one(task: str, seed: int) -> bool:
            async with pool.lease() as env:
                draw = random.Random(seed)
                await env.reset(as_task(task), seed)
                for _ in range(6):
                    await env.act(random_action(draw))
                status = await env.status()
                assert status.reward is None or -1 <= status.reward <= 1
                return status.success is True

        return await asyncio.gather(*(one(task, seed) for task in tasks for seed in range(3)))

    solved = with_pages(run, pages=4)
    assert sum(solved) / len(solved) < 0.5


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
