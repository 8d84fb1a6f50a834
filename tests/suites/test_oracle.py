"""Oracles solve their tasks, also from where others left them, and what they leave behind can be learned from."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from holotron.actions.action import Action, Click, Type, to_json
from holotron.agent.agent import Budget
from holotron.agent.chat import ChatModel
from holotron.agent.policy_format import NANO_WIDGETS
from holotron.env.task import Task
from holotron.episodes.record import Episode, PolicyInfo
from holotron.episodes.store import EpisodeStore
from holotron.suites.miniwob.environment import MiniWoBEnvironment
from holotron.suites.miniwob.oracle.registry import ORACLES
from holotron.suites.miniwob.page_inspector import PageInspector
from holotron.suites.miniwob.suite import MiniWoBSuite
from holotron.suites.play import Play, play_tasks
from tests.agent.replies import Recited

SUITE = MiniWoBSuite()
# Not every episode can be won: an opponent plays at random, a price runs away, an item does not take the mouse.
LUCK = ("tic-tac-toe", "stock-market", "hot-cold", "click-pie", "click-pie-nodelay", "terminal")
CORNER = '{"action":"click","x":990,"y":990}'


def played(
    folder: Path, tasks: Sequence[Task], model: ChatModel | None = None, *, steps: int = 30, **changes: float
) -> list[Episode]:
    play = Play(SUITE, folder, PolicyInfo(model="x"), NANO_WIDGETS, Budget(steps=steps), "strict", True, **changes)  # type: ignore[arg-type]
    counters = asyncio.run(play_tasks(play, tasks, model, sessions=6))
    assert counters.infrastructure == 0
    store = EpisodeStore(folder)
    return [store.read(info.id) for info in store.list_episodes()]


def test_nearly_every_task_has_an_oracle() -> None:
    assert len(SUITE.taught()) >= 123


def test_one_episode_of_every_other_task(tmp_path: Path) -> None:
    """All of them: `holotron data miniwob`, which takes minutes."""
    names = [name for name in SUITE.taught()[::2] if name not in LUCK]
    episodes = played(tmp_path, SUITE.tasks(names, [1]))
    assert len(episodes) == len(names)
    failed = [(episode.task.name, episode.outcome) for episode in episodes if not _solved(episode)]
    # An animation that the loaded machine drew late may spoil one.
    assert len(failed) <= 1, failed
    assert all(step.actor == "teacher" and step.output is None for episode in episodes for step in episode.steps)


def _solved(episode: Episode) -> bool:
    return episode.outcome is not None and episode.outcome.success is True


def test_disturbed_episodes_say_what_was_clumsy(tmp_path: Path) -> None:
    episodes = played(tmp_path, SUITE.tasks(["enter-text", "click-checkboxes", "login-user"], [1, 2, 3]), noise=0.4)
    steps = [step for episode in episodes for step in episode.steps]
    disturbed = [step for step in steps if step.actor == "disturbance"]
    assert 0 < len(disturbed) < len(steps) / 2
    for step in steps:
        assert step.action is not None
        assert step.teacher is not None
        assert step.actor == "disturbance" or step.action == step.teacher
    assert all(isinstance(step.action.parse(), Click) for step in disturbed if step.action is not None)
    assert sum(map(_solved, episodes)) >= 6


def test_calm_episodes_are_not_disturbed(tmp_path: Path) -> None:
    tasks = SUITE.tasks(["click-test"], range(24))
    noisy = {
        episode.task.seed
        for episode in played(tmp_path, tasks, noise=1.0, calm=0.5, steps=1)
        if episode.steps[0].actor == "disturbance"
    }
    assert noisy == {seed for seed in range(24) if random.Random(f"noise/click-test/{seed}").random() < 0.5}


async def test_an_oracle_can_be_asked_in_any_state() -> None:
    """What somebody else typed wrongly is cleared, and what is right is not typed again."""
    async with SUITE.pool(1) as pool, SUITE.begin(pool, SUITE.task("enter-text", 3)) as env:
        answers = []
        for typed in ("wrong", None):
            await env.click(40, 70)
            if typed:
                await env.type_text(typed)
            action = await SUITE.teacher(env).ask()
            assert action is not None
            answers.append(to_json(action))
        first, second = answers
    assert '"clear":true' in first
    assert first == second


# Where somebody went wrong: what was clicked, one after the other, and typed into the last.
ASTRAY = {
    "navigate-tree": (["#tree > li.expandable > .folder"], ""),
    "phone-book": (["#pagination .next a"] * 4, ""),
    "search-engine": (["#search", "#pagination .next a", "#search-text"], "Nobody"),
    "use-autocomplete": (["#tags"], "Zi"),
    "use-autocomplete-nodelay": (["#tags"], "Nowhere"),
}


def test_oracles_find_back() -> None:
    async def run() -> list[tuple[str, float | None]]:
        async with SUITE.pool(5) as pool:
            tasks = SUITE.tasks(list(ASTRAY), [1, 3])
            return await asyncio.gather(*(one(pool, task) for task in tasks))

    async def one(pool: object, task: Task) -> tuple[str, float | None]:
        assert task.name is not None
        clicked, typed = ASTRAY[task.name]
        async with SUITE.begin(pool, task) as env:
            for selector in clicked:
                await click_on(env, selector)
            await env.type_text(typed)
            for _ in range(10):
                action = await SUITE.teacher(env).ask()
                assert action is not None
                await env.act(action)
                if (standing := await env.status()).done:
                    return task.name, standing.reward
            return task.name, None

    assert [end for end in asyncio.run(run()) if end[1] != 1] == []


async def click_on(env: MiniWoBEnvironment, selector: str) -> None:
    point = (await PageInspector(env).one(selector)).point
    assert point is not None
    await env.click(*point)


def test_a_policy_is_corrected_and_relieved(tmp_path: Path) -> None:
    """DAgger in a real browser: where it deviates the teacher's action is recorded, and the teacher finishes."""
    episodes = played(tmp_path, SUITE.tasks(["enter-text"], range(4)), Recited(CORNER), deviations=1)
    assert len(episodes) == 4
    for episode in episodes:
        first, *rest = episode.steps
        assert (first.actor, first.action.text if first.action else "") == ("policy", CORNER)
        assert first.output is not None
        assert first.teacher is not None
        assert isinstance(first.teacher.parse(), Type)
        assert [(step.actor, step.output) for step in rest] == [("teacher", None)] * 2
        assert _solved(episode)


def test_what_was_taught_stays_when_the_oracle_knows_no_way_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def reads_a_word_that_is_gone(page: PageInspector) -> Action | None:
        (await page.read("editor.getText()")).index(page.said(r"the \w+ (\S+) the")[1])
        return Click(x=100, y=400)

    vandal = '{"action":"type","x":500,"y":560,"text":"no","clear":true,"enter":false}'
    SUITE.taught()
    for oracle in (ORACLES["text-editor"], reads_a_word_that_is_gone):
        monkeypatch.setitem(ORACLES, "text-editor", oracle)
        (episode,) = played(tmp_path / oracle.__name__, SUITE.tasks(["text-editor"], [4]), Recited(vandal))
        assert episode.outcome is not None
        assert (episode.outcome.reason, episode.outcome.success) == ("stopped", False)
        assert [(step.actor, step.teacher is not None) for step in episode.steps] == [("policy", True)]
