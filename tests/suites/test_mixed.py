"""Several suites as one: each task is played, judged and asked for as in its own suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotron.agent.agent import Ending
from holotron.suites.miniwob.environment import MiniWoBEnvironment
from holotron.suites.mixed import MixedSuite
from holotron.suites.pages.environment import PageEnvironment
from holotron.suites.suite import SuiteError, find_suite
from holotron.train.rl.config import GrpoRecipe, RolloutConfig
from holotron.train.rl.rollout import Rollout


async def test_tasks_of_both_are_begun_in_their_own_worlds() -> None:
    suite = find_suite("miniwob+pages")
    names = suite.names()
    assert {name.split("/")[0] for name in names} == {"miniwob", "pages"}
    held_out = find_suite("pages").names("held-out")
    assert not any(f"pages/{name}" in names for name in held_out)
    page = next(name for name in names if name.startswith("pages/"))
    tasks = [suite.task("miniwob/click-test", 7), suite.task(page, 7)]
    assert [(task.benchmark, task.name) for task in tasks] == [("miniwob", "click-test"), ("pages", page[6:])]
    assert suite.page_of(tasks[0]) != suite.page_of(suite.task("miniwob/click-link", 7))
    async with suite.pool(1) as pool:
        for task, kind in zip(tasks, (MiniWoBEnvironment, PageEnvironment), strict=True):
            async with suite.begin(pool, task) as env:
                assert isinstance(env, kind)
                assert (await env.observe()).image
                # A near miss is no success by the rules of either.
                ended = await suite.judge(env, task, Ending("done", reward=0.5), suite.rule)
                assert ended.success is False


def test_each_is_asked_for_the_actions_that_make_sense_there(tmp_path: Path) -> None:
    def rollout(**more: tuple[str, ...]) -> Rollout:
        config = RolloutConfig(suite="miniwob+pages", **more)  # type: ignore[arg-type]
        return Rollout(GrpoRecipe(name="r", start="holotron-nano", steps=1, rollout=config), tmp_path)

    formats = rollout().formats
    assert ("answer" in formats["pages"].kinds, "answer" in formats["miniwob"].kinds) == (True, False)
    assert rollout(kinds=("click",)).formats == {}
    assert rollout(tasks=("miniwob/click-test",)).tasks == ("miniwob/click-test",)
    with pytest.raises(SuiteError, match="no task 'click-test' in miniwob\\+pages"):
        rollout(tasks=("click-test",))
    assert isinstance(find_suite("bandit+pages"), MixedSuite)
    with pytest.raises(SuiteError, match="there is no suite 'nothing'"):
        find_suite("pages+nothing")
