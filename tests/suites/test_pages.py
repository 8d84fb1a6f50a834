"""Generated pages: every one can be solved, from wherever one is, and only by doing what was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.async_api import async_playwright

from holotron.actions.action import Answer, Infeasible, Scroll, Type, parse_action
from holotron.agent.agent import Agent, Budget
from holotron.agent.baselines import RandomModel
from holotron.agent.chat import Message, Reply
from holotron.agent.policy_format import BareJsonFormat
from holotron.env.browser.chromium import find_chromium, launch_arguments
from holotron.env.errors import ActionFailed
from holotron.episodes.shards import read_shard
from holotron.eval.plain_pages import FOLDER
from holotron.suites.pages.make import Wanted, make_samples
from holotron.suites.pages.play import PlayedPage, next_action, play_page
from holotron.suites.pages.pool import PagePool
from holotron.suites.pages.task import UnknownTemplate, all_templates, draw_task
from holotron.suites.pages.world import PageWorld, plain

T = TypeVar("T")
NAMES = [found.name for found in all_templates()]
PAGES = FOLDER

pytestmark = pytest.mark.skipif(find_chromium()[0] is None, reason="there is no Chromium")


def in_pool(do: Callable[[PagePool], Awaitable[T]], pages: int = 1) -> T:
    async def run() -> T:
        async with PagePool(pages) as pool:
            return await do(pool)

    return asyncio.run(run())


def in_world(name: str, seed: int, do: Callable[[PageWorld], Awaitable[T]]) -> T:
    async def run(pool: PagePool) -> T:
        async with pool.world() as world:
            await world.begin(draw_task(name, seed))
            return await do(world)

    return in_pool(run)


def play_all(games: list[tuple[str, int]], noise: float = 0.0) -> list[PlayedPage]:
    async def run(pool: PagePool) -> list[PlayedPage]:
        async def one(name: str, seed: int) -> PlayedPage:
            async with pool.world() as world:
                return await play_page(world, draw_task(name, seed), noise)

        return list(await asyncio.gather(*(one(*game) for game in games)))

    return in_pool(run, pages=4)


def unsolved(played: list[PlayedPage]) -> list[str]:
    return [
        f"{episode.task.template} seed {episode.task.seed}: {episode.problem}"
        for episode in played
        if episode.reward != 1
    ]


def test_every_template_is_solved_by_its_teacher() -> None:
    played = play_all([(name, 0) for name in NAMES])
    assert unsolved(played) == []
    for episode in played:
        sample = episode.sample()
        assert sample.kind == f"pages/{episode.task.template}"
        assert sample.turns[0].said == f"Task: {episode.task.text}"
        assert all(turn.said == "" for turn in sample.turns[1:])
        assert all(turn.image and turn.image.startswith(b"\x89PNG") for turn in sample.turns)
        assert isinstance(parse_action(sample.turns[-1].answer), Answer)
        assert not any(isinstance(parse_action(turn.answer), Answer) for turn in sample.turns[:-1])


def test_teachers_recover_from_disturbances() -> None:
    played = play_all([(name, 7) for name in NAMES[::2]], noise=0.3)
    # A disturbance can do what cannot be undone; nothing else may end an episode.
    lost = [episode for episode in played if episode.reward != 1]
    assert [episode.problem for episode in lost if episode.reward is None] == []
    assert len(lost) <= len(NAMES) // 10
    disturbed = [turn for episode in played for turn in episode.turns if not turn.learn]
    assert len(disturbed) > len(NAMES) // 6


def test_composed_pages_are_solved_wherever_things_are_hidden() -> None:
    games = [(name, seed) for name in NAMES if name.startswith("mosaic") for seed in range(20, 26)]
    pages = [draw_task(*game).html for game in games]
    for way in ('class="tabs"', 'class="fold"', 'class="veil"', 'class="menu"', 'class="back"'):
        assert any(way in page for page in pages), f"none of these pages has {way}"
    assert unsolved(play_all(games)) == []


def test_where_enter_sends_nothing_the_button_is_pressed() -> None:
    ignores_enter = next(seed for seed in range(100) if '"deaf": true' in draw_task("login", seed).html)

    async def enter_then(world: PageWorld) -> tuple[bool, Sequence[str]]:
        said = []
        for _ in range(6):
            action = await next_action(world)
            assert action is not None
            if isinstance(action, Type):
                action = action.model_copy(update={"enter": True})
            await world.act(action)
            said.append(action.action)
        return (await world.status()).success is True, said

    won, said = in_world("login", ignores_enter, enter_then)
    assert said[:3] == ["type", "type", "click"]
    assert won
    assert not any('"deaf"' in draw_task(found.name, 0).html for found in all_templates(held_out=True))


def test_a_seed_always_draws_the_same_task() -> None:
    for name in NAMES:
        assert draw_task(name, 11) == draw_task(name, 11)
        assert len({draw_task(name, seed).html for seed in range(4)}) == 4


def test_tasks_are_said_in_many_ways_and_sizes() -> None:
    for name in NAMES:
        drawn = [draw_task(name, seed) for seed in range(60)]
        assert len({task.text.split()[0].lower() for task in drawn}) >= 2, name
        assert len({task.text for task in drawn}) >= 10, name
        assert len({task.viewport for task in drawn}) == 4, name


def test_held_out_templates_are_never_drawn_for_training() -> None:
    training = {found.name for found in all_templates(held_out=False)}
    held_out = {found.name for found in all_templates(held_out=True)}
    assert len(held_out) >= 6
    assert len(training) >= 19
    assert not training & held_out
    assert training | held_out == set(NAMES)
    assert all(draw_task(name, 0).held_out == (name in held_out) for name in NAMES)


def test_unknown_templates_are_named() -> None:
    with pytest.raises(UnknownTemplate, match="there is no template 'nothing'"):
        draw_task("nothing", 0)


def test_saying_done_too_early_is_worth_nothing() -> None:
    async def run(pool: PagePool) -> list[str]:
        async def one(name: str) -> str | None:
            async with pool.world() as world:
                await world.begin(draw_task(name, 1))
                return name if (await world.judge("")).reward != 0 else None

        return [name for name in await asyncio.gather(*map(one, NAMES)) if name]

    assert in_pool(run, pages=4) == []


@pytest.mark.parametrize("name", ["table_ask", "shop_ask"])
def test_questions_are_judged_by_the_answer(name: str) -> None:
    async def right(world: PageWorld) -> tuple[float | None, bool]:
        action = await next_action(world)
        while not isinstance(action, Answer):
            assert isinstance(action, Scroll)
            await world.act(action)
            action = await next_action(world)
        standing = await world.judge(f" {action.text.upper()} ")
        return standing.reward, (await world.status()).done

    async def wrong(world: PageWorld) -> float | None:
        await world.act(Answer(text="no idea"))
        return (await world.status()).reward

    assert in_world(name, 3, right) == (1.0, True)
    assert in_world(name, 3, wrong) == 0.0


def test_answers_are_compared_without_their_dress() -> None:
    assert plain("$12.50") == plain(" 12.50 ") == plain('"12.50".')
    assert plain("Ada  Baker") == plain("ada baker")
    assert plain("12.50") != plain("12.5")


def test_a_wrong_act_that_cannot_be_undone_ends_the_task() -> None:
    async def run(world: PageWorld) -> tuple[bool, float | None]:
        await world.evaluate("document.querySelectorAll('.act').forEach(b => b.click())")
        standing = await world.status()
        return standing.done, standing.reward

    assert in_world("table_button", 2, run) == (True, 0.0)


def test_what_a_page_cannot_do_is_said() -> None:
    async def run(world: PageWorld) -> None:
        with pytest.raises(ActionFailed, match="one page without an address"):
            await world.act(parse_action('{"action":"back"}'))
        with pytest.raises(ActionFailed, match="no <select>"):
            await world.act(parse_action('{"action":"select","x":1,"y":999,"option":"a"}'))
        await world.act(Infeasible(reason="no"))
        assert (await world.status()).success is False

    in_world("login", 0, run)


def test_wrong_text_is_cleared_first() -> None:
    async def run(world: PageWorld) -> None:
        first = await next_action(world)
        assert isinstance(first, Type)
        assert not first.clear
        await world.act(first.model_copy(update={"text": "somebody"}))
        second = await next_action(world)
        assert second == first.model_copy(update={"clear": True})
        await world.act(second)
        assert await next_action(world) != second

    in_world("login", 0, run)


def test_an_agent_can_be_set_on_a_task() -> None:
    async def run(pool: PagePool) -> None:
        async with pool.world() as world:
            task = draw_task("login", 0)
            await world.begin(task)
            agent = Agent(RandomModel(3), world, policy_format=BareJsonFormat(), budget=Budget(steps=5))
            ending = await agent.run(task.text)
            assert ending.reason in ("step_limit", "done")
            assert (await world.judge(ending.answer)).reward == 0

    in_pool(run)


def test_shards_hold_only_solved_training_tasks(folder: Path) -> None:
    templates = ("login", "table_ask")
    steps = asyncio.run(make_samples(Wanted(folder / "pages", 4, "0", 0.2, templates)))
    samples = [sample for path in sorted(folder.glob("*.tar")) for sample in read_shard(path)]
    assert len(samples) == 4
    assert sum(len(sample.turns) for sample in samples) == steps
    assert all(sample.about["reward"] == 1 for sample in samples)


class Saying:
    """A policy that always says the same."""

    name = "saying"

    def __init__(self, answer: str) -> None:
        self.answer = answer

    async def open(self) -> Saying:
        return self

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        return Reply(self.answer)

    async def close(self) -> None:
        pass


def test_relabelling_teaches_the_way_back(folder: Path) -> None:
    wrong = '{"action":"click","x":990,"y":990}'
    asyncio.run(make_samples(Wanted(folder / "pages", 9, "0", 0.2, ("login",)), Saying(wrong)))
    samples = [sample for path in sorted(folder.glob("*.tar")) for sample in read_shard(path)]
    assert len(samples) == 9
    assert {sample.kind for sample in samples} == {"dagger/pages/login"}
    # Twice it goes astray, and is told what was right; then the teacher shows the way from there to the end.
    taught = sorted({tuple(turn.learn for turn in sample.turns) for sample in samples}, key=len)
    assert taught[:2] == [(True,), (False, True)]
    assert all(learned[:2] == (False, False) and all(learned[2:]) for learned in taught[2:])
    whole = [sample for sample in samples if "cut" not in sample.about]
    assert whole
    assert all(sample.about["reward"] == 1 for sample in whole)
    assert all(sample.turns[0].answer == sample.turns[1].answer == wrong for sample in whole)


def test_what_cannot_be_undone_is_told_and_no_more(folder: Path) -> None:
    done = '{"action":"answer","text":"done"}'
    asyncio.run(make_samples(Wanted(folder / "pages", 3, "0", 0.2, ("login",)), Saying(done)))
    samples = [sample for path in sorted(folder.glob("*.tar")) for sample in read_shard(path)]
    assert [[turn.learn for turn in sample.turns] for sample in samples] == [[True]] * 3
    assert all(parse_action(sample.turns[0].answer).action == "type" for sample in samples)


def test_plain_pages_tell_success_only_when_done() -> None:
    async def run() -> list[bool]:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=find_chromium()[0], args=launch_arguments())
            page = await browser.new_page()
            results = []
            for path in sorted(PAGES.glob("*.json")):
                about = json.loads(path.read_text())
                await page.set_content(path.with_suffix(".html").read_text())
                results.append(await page.evaluate(about["success"]))
                await solve_plainly[path.stem](page)
                results.append(await page.evaluate(about["success"]))
            await browser.close()
            return results

    async def login(page):  # type: ignore[no-untyped-def]
        await page.fill("[name=member]", "walter")
        await page.fill("[name=secret]", "tomato7")
        await page.click("[type=submit]")

    async def search(page):  # type: ignore[no-untyped-def]
        await page.fill("#q", "owl")
        await page.press("#q", "Enter")
        await page.click(".bird:nth-of-type(2) a")

    async def todo(page):  # type: ignore[no-untyped-def]
        await page.click("text=Torch")
        await page.fill("#thing", "Matches")
        await page.click("button")

    solve_plainly = {"login": login, "search": search, "todo": todo}
    assert asyncio.run(run()) == [False, True] * 3
