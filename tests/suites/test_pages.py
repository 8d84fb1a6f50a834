"""Generated pages: every one can be solved, from wherever one is, and only by doing what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.async_api import Error

from holotron.actions.action import Action, Answer, Click, Infeasible, Scroll, Type, parse_action
from holotron.actions.coordinates import Space
from holotron.agent.agent import Agent, Budget
from holotron.agent.baselines import RandomModel
from holotron.agent.chat import ChatModel
from holotron.agent.policy_format import NANO, BareJsonFormat
from holotron.env.browser.chromium import find_chromium
from holotron.env.environment import Environment
from holotron.env.errors import ActionFailed, PageCrashed
from holotron.env.task import Task
from holotron.episodes.record import Episode, PolicyInfo
from holotron.episodes.store import EpisodeStore
from holotron.suites.pages.environment import PageEnvironment, plain
from holotron.suites.pages.starts import draw_start
from holotron.suites.pages.suite import PagesSuite
from holotron.suites.pages.task import UnknownTemplate, all_templates, draw_task
from holotron.suites.play import Play, play_tasks
from holotron.suites.suite import HELD_OUT_SEEDS
from tests.agent.replies import Recited
from tests.suites.shared_pool import SharedPool

T = TypeVar("T")
SUITE = PagesSuite()
NAMES = SUITE.names()

pytestmark = pytest.mark.skipif(find_chromium()[0] is None, reason="there is no Chromium")


@pytest.fixture(scope="module")
def pages() -> Iterator[SharedPool]:
    pages = SharedPool(SUITE.pool(4))
    yield pages
    pages.close()


def in_world(pages: SharedPool, name: str, seed: int, do: Callable[[PageEnvironment], Awaitable[T]]) -> T:
    async def run(pool: Any) -> T:
        async with SUITE.begin(pool, SUITE.task(name, seed)) as world:
            return await do(world)

    return pages.run(run)


async def next_action(world: PageEnvironment) -> Action | None:
    return await SUITE.teacher(world).ask()


def play_all(
    folder: Path, games: list[tuple[str, int]], noise: float = 0.0, policy: ChatModel | None = None
) -> list[Episode]:
    play = Play(SUITE, folder, PolicyInfo(model="x"), NANO, Budget(max_misunderstood=1), "full", True, noise)
    asyncio.run(play_tasks(play, [SUITE.task(*game) for game in games], policy, sessions=4))
    store = EpisodeStore(folder)
    return [store.read(info.id) for info in store.list_episodes()]


def unsolved(played: list[Episode]) -> list[str]:
    return [
        f"{episode.task.name} seed {episode.task.seed}: {episode.outcome}"
        for episode in played
        if episode.outcome is None or episode.outcome.reward != 1
    ]


def actions(episode: Episode) -> list[Action]:
    return [step.action.parse() for step in episode.steps if step.action is not None]


def test_every_template_is_solved_by_its_teacher(folder: Path) -> None:
    played = play_all(folder, [(name, 0) for name in NAMES])
    assert unsolved(played) == []
    assert {episode.task.name for episode in played} == set(NAMES)
    for episode in played:
        assert episode.task.text == draw_task(episode.task.name or "", 0).text
        assert all(step.actor == "teacher" and step.observation.image for step in episode.steps)
        *before, last = actions(episode)
        assert isinstance(last, Answer | Infeasible)
        assert not any(isinstance(action, Answer | Infeasible) for action in before)


def test_teachers_recover_from_disturbances(folder: Path) -> None:
    played = play_all(folder, [(name, 7) for name in NAMES[::2]], noise=0.3)
    # A disturbance can do what cannot be undone; nothing else may end an episode.
    lost = [episode.outcome for episode in played if episode.outcome and episode.outcome.reward != 1]
    assert [outcome for outcome in lost if outcome.reason not in ("done", "answered")] == []
    assert len(lost) <= len(NAMES) // 10
    disturbed = [step for episode in played for step in episode.steps if step.actor == "disturbance"]
    assert len(disturbed) > len(NAMES) // 6
    assert all(step.teacher is not None for step in disturbed)


def test_composed_pages_are_solved_wherever_things_are_hidden(folder: Path) -> None:
    games = [(name, seed) for name in NAMES if name.startswith("mosaic") for seed in range(20, 23)]
    pages = [draw_task(*game).html for game in games]
    for way in ('class="tabs"', 'class="fold"', 'class="veil"', 'class="menu"', 'class="back"'):
        assert any(way in page for page in pages), f"none of these pages has {way}"
    assert unsolved(play_all(folder, games)) == []


def test_where_enter_sends_nothing_the_button_is_pressed(pages: SharedPool) -> None:
    ignores_enter = next(seed for seed in range(100) if '"deaf": true' in draw_task("login", seed).html)

    async def enter_then(world: PageEnvironment) -> tuple[bool, Sequence[str]]:
        said = []
        for _ in range(6):
            action = await next_action(world)
            assert action is not None
            if isinstance(action, Type):
                action = action.model_copy(update={"enter": True})
            await world.act(action)
            said.append(action.action)
        return (await world.status()).success is True, said

    won, said = in_world(pages, "login", ignores_enter, enter_then)
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


def test_saying_done_too_early_is_worth_nothing(pages: SharedPool) -> None:
    async def run(pool: Any) -> list[str]:
        async def one(name: str) -> str | None:
            async with SUITE.begin(pool, SUITE.task(name, HELD_OUT_SEEDS[1])) as world:
                return name if (await world.judge("")).reward != 0 else None

        return [name for name in await asyncio.gather(*map(one, NAMES)) if name]

    assert pages.run(run) == []


@pytest.mark.parametrize("name", ["table_ask", "shop_ask"])
def test_questions_are_judged_by_the_answer(pages: SharedPool, name: str) -> None:
    async def right(world: PageEnvironment) -> tuple[float | None, bool]:
        action = await next_action(world)
        while not isinstance(action, Answer):
            assert isinstance(action, Scroll)
            await world.act(action)
            action = await next_action(world)
        standing = await world.judge(f" {action.text.upper()} ")
        return standing.reward, (await world.status()).done

    async def wrong(world: PageEnvironment) -> float | None:
        await world.act(Answer(text="no idea"))
        return (await world.status()).reward

    assert in_world(pages, name, 3, right) == (1.0, True)
    assert in_world(pages, name, 3, wrong) == 0.0


def test_answers_are_compared_without_their_dress() -> None:
    assert plain("$12.50") == plain(" 12.50 ") == plain('"12.50".')
    assert plain("Ada  Baker") == plain("ada baker")
    assert plain("12.50") != plain("12.5")


def test_once_all_is_done_anything_else_loses(pages: SharedPool) -> None:
    async def run(world: PageEnvironment) -> list[float | None]:
        rewards = []
        while not isinstance(action := await next_action(world), Answer):
            assert action is not None
            await world.act(action)
            rewards.append((await world.status()).reward)
        await world.act(Scroll(direction="down"))  # looking changes nothing
        rewards.append((await world.status()).reward)
        await world.act(Click(x=x, y=y))
        rewards.append((await world.status()).reward)
        return [*rewards, (await world.judge("")).reward]

    # A list in which something is to be ticked, and then something else is.
    seed = HELD_OUT_SEEDS[0]
    x, y = in_world(pages, "todo_tick", seed, other_box)
    *before, after, clicked, judged = in_world(pages, "todo_tick", seed, run)
    assert (before[-1], after, clicked, judged) == (1, 1, 0, 0)


async def other_box(world: PageEnvironment) -> tuple[int, int]:
    """A box that the task does not name."""
    spots = await world.evaluate("__page.spots('input[type=checkbox]:not(:checked)')")
    action = await next_action(world)
    assert isinstance(action, Click)
    points = [Space("pixels", *world.size).to_relative(*spot) for spot in spots]
    return next((round(x), round(y)) for x, y in points if abs(y - (action.y or 0)) > 10)


def test_some_tasks_begin_done_and_some_cannot_be_done(pages: SharedPool, folder: Path) -> None:
    starts = {start: seed for seed in range(60, 0, -1) for start in [draw_start("list_button", seed)]}

    async def first(world: PageEnvironment) -> tuple[bool, Action | None]:
        return world.impossible, await next_action(world)

    assert in_world(pages, "list_button", starts["fresh"], first)[0] is False
    assert in_world(pages, "list_button", starts["done"], first) == (False, Answer(text=""))
    assert in_world(pages, "list_button", starts["impossible"], first) == (True, Infeasible(reason="not found"))
    assert unsolved(play_all(folder, [("list_button", seed) for seed in starts.values()])) == []
    assert {draw_start(name, seed) for name in NAMES for seed in HELD_OUT_SEEDS[:20]} == {"fresh"}
    held_out = [found.name for found in all_templates(held_out=True)]
    assert {draw_start(name, seed) for name in held_out for seed in range(50)} == {"fresh"}

    async def gives_up(world: PageEnvironment) -> float | None:
        await world.act(Infeasible(reason="no"))
        return (await world.status()).reward

    assert in_world(pages, "list_button", starts["fresh"], gives_up) == 0


def test_what_is_in_the_way_is_put_aside_first(pages: SharedPool) -> None:
    async def run(world: PageEnvironment) -> tuple[bool, bool]:
        action = await next_action(world)
        assert isinstance(action, Click)
        await world.act(action)
        gone = await world.evaluate("!document.querySelector('.cover')")
        return gone, (await world.status()).done

    async def send_unasked(world: PageEnvironment) -> bool:
        await world.evaluate("document.querySelector('[data-distractor=form] button').click()")
        return (await world.status()).done

    def with_part(part: str) -> int:
        return next(seed for seed in HELD_OUT_SEEDS[:300] if part in draw_task("contact", seed).html)

    assert in_world(pages, "contact", with_part('class="cover" data-distractor'), run) == (True, False)
    assert in_world(pages, "contact", with_part('data-distractor="form"'), send_unasked) is True


def test_a_wrong_act_that_cannot_be_undone_ends_the_task(pages: SharedPool) -> None:
    async def run(world: PageEnvironment) -> tuple[bool, float | None]:
        await world.evaluate("document.querySelectorAll('.act').forEach(b => b.click())")
        standing = await world.status()
        return standing.done, standing.reward

    assert in_world(pages, "table_button", 2, run) == (True, 0.0)


def test_what_a_page_cannot_do_is_said(pages: SharedPool) -> None:
    async def run(world: PageEnvironment) -> None:
        with pytest.raises(ActionFailed, match="one page without an address"):
            await world.act(parse_action('{"action":"back"}'))
        with pytest.raises(ActionFailed, match="no <select>"):
            await world.act(parse_action('{"action":"select","x":1,"y":999,"option":"a"}'))
        await world.act(Infeasible(reason="no"))
        assert (await world.status()).success is False

    in_world(pages, "login", 0, run)


def test_wrong_text_is_cleared_first(pages: SharedPool) -> None:
    async def run(world: PageEnvironment) -> None:
        first = await next_action(world)
        assert isinstance(first, Type)
        assert not first.clear
        await world.act(first.model_copy(update={"text": "somebody"}))
        second = await next_action(world)
        assert second == first.model_copy(update={"clear": True})
        await world.act(second)
        assert await next_action(world) != second

    in_world(pages, "login", 0, run)


def test_an_agent_can_be_set_on_a_task(pages: SharedPool) -> None:
    async def run(world: PageEnvironment) -> None:
        agent = Agent(RandomModel(3), world, policy_format=BareJsonFormat(), budget=Budget(steps=5))
        ending = await agent.run(world.instruction)
        assert ending.reason in ("step_limit", "done")
        assert (await world.judge(ending.answer)).reward == 0

    in_world(pages, "login", 0, run)


async def test_a_page_is_an_environment() -> None:
    async with SUITE.pool(1) as pool, pool.lease() as env:
        played: Environment = env
        with pytest.raises(RuntimeError, match="no task was begun"):
            env.task  # noqa: B018
        first = await played.reset(Task(text="", benchmark="pages", name="login"), 0)
        assert played.instruction == draw_task("login", 0).text
        assert (first.width, first.height) == draw_task("login", 0).viewport
        assert (await played.observe()).image == first.image
        while not (await played.status()).done:
            action = await next_action(env)
            assert action is not None
            await played.act(action)
        assert (await played.status()).success is True


def test_a_frame_that_is_late_is_asked_for_again(pages: SharedPool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(pool: Any) -> None:
        async with pool.lease() as env:
            first = await env.reset(Task(text="", benchmark="pages", name="login"), 0)
            send, late = env.opened.cdp.send, ["one", "two"]

            async def sends_late(method: str, parameters: dict[str, Any]) -> Any:
                if method == "Page.captureScreenshot" and late:
                    late.pop()
                    raise Error("Protocol error (Page.captureScreenshot): Unable to capture screenshot")
                return await send(method, parameters)

            monkeypatch.setattr(env.opened.cdp, "send", sends_late)
            assert (await env.observe()).image == first.image
            assert late == []

    pages.run(run)


def test_a_page_that_died_is_opened_again(pages: SharedPool) -> None:
    async def run(pool: Any) -> None:
        async with pool.lease() as env:
            task = Task(text="", benchmark="pages", name="login")
            first = await env.reset(task, 0)
            crash = asyncio.create_task(env.opened.cdp.send("Page.crash"))
            with pytest.raises(PageCrashed, match="login seed 0"):
                await env.evaluate("new Promise(() => {})")
            crash.cancel()
            await asyncio.gather(crash, return_exceptions=True)
            assert (await env.reset(task, 0)).image == first.image

    pages.run(run)


def test_a_policy_is_corrected_and_relieved(folder: Path) -> None:
    wrong = '{"action":"click","x":990,"y":990}'
    played = play_all(folder, [("login", seed) for seed in range(3)], policy=Recited(wrong))
    assert unsolved(played) == []
    # Twice it goes astray, and is told what was right; then the teacher shows the way from there to the end.
    for episode in played:
        assert [step.actor for step in episode.steps[:3]] == ["policy", "policy", "teacher"]
        assert {step.actor for step in episode.steps[2:]} == {"teacher"}
        assert [step.action.text for step in episode.steps[:2] if step.action] == [wrong, wrong]
        assert all(step.teacher is not None for step in episode.steps)


def test_what_cannot_be_undone_is_told_and_no_more(folder: Path) -> None:
    done = '{"action":"answer","text":"done"}'
    for episode in play_all(folder, [("login", seed) for seed in HELD_OUT_SEEDS[:3]], policy=Recited(done)):
        (step,) = episode.steps
        assert (step.actor, step.action.text if step.action else "") == ("policy", done)
        assert step.teacher is not None
        assert step.teacher.parse().action in ("type", "click")
        assert episode.outcome is not None
        assert (episode.outcome.success, episode.outcome.reward) == (False, 0)
