"""One page: what it shows, what can be done to it, how an episode ends."""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest
from PIL import Image
from playwright.async_api import Route

from holotron.actions.action import Action, DoubleClick, Press, Scroll, Type, Wait, parse_action
from holotron.env.errors import ActionFailed
from holotron.env.task import Task
from holotron.suites.miniwob.environment import MiniWoBConfig, MiniWoBEnvironment
from holotron.suites.miniwob.oracle.acts import at
from holotron.suites.miniwob.oracle.acts import click as click_on
from holotron.suites.miniwob.page_inspector import PageInspector
from holotron.suites.miniwob.pool import MiniWoBPool, miniwob_pool
from holotron.suites.miniwob.tasks import MiniWoBError, as_task, task_url
from tests.suites.miniwob_checks.check import first_screens, random_endings
from tests.suites.miniwob_driver import click, hover, needs_chromium, with_pages
from tests.suites.shared_pool import SharedPool

pytestmark = needs_chromium

# Among them every task that shows a date, a timer, pictures, a caret or a drawing.
SAMPLE = [
    *("terminal", "stock-market", "choose-date", "book-flight", "social-media", "email-inbox", "order-food"),
    *("drag-cube", "click-pie", "count-sides", "click-dialog", "text-editor", "use-colorwheel", "tic-tac-toe"),
    *("enter-text-dynamic", "unicode-test", "daily-calendar", "click-menu", "click-shape", "search-engine"),
]


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedPool]:
    shared = SharedPool(miniwob_pool())
    yield shared
    shared.close()


def with_env(shared: SharedPool, work: Callable[[MiniWoBEnvironment], Awaitable[None]]) -> None:
    async def run(pool: MiniWoBPool) -> None:
        pool.envs[0].config = MiniWoBConfig()
        await work(pool.envs[0])

    shared.run(run)


def test_a_page_shows_the_task(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        seen = await env.reset(as_task("enter-text"), 3)
        assert (seen.width, seen.height) == (160, 210)
        image = Image.open(io.BytesIO(seen.image))
        assert image.format == "PNG"
        assert image.size == (160, 210)
        assert image.convert("RGB").getpixel((1, 1)) == (255, 255, 0)  # the instruction's background
        assert env.instruction == 'Enter "Myron" into the text field and press Submit.'
        assert not (await env.result()).done
        assert await env.evaluate("[innerWidth, innerHeight]") == [500, 320]
        # Byte for byte what that part of the whole viewport shows.
        await env.opened.cdp.send("Emulation.setVisibleSize", {"width": 500, "height": 320})
        assert seen.image == await env.capture(160, 210)
        await env.close()

    with_env(shared, run)


def test_what_reset_saw_is_not_looked_at_again_unless_the_page_moves(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        first = await env.reset(as_task("click-button"), 3)
        assert await env.observe() is first
        again = await env.observe()
        assert again is not first
        assert again.image == first.image
        await env.reset(as_task("click-button"), 3)
        await env.act(hover(80, 100))
        assert await env.observe() is not first
        first = await env.reset(as_task("click-pie"), 3)  # something moves by itself there
        assert await env.observe() is not first

    with_env(shared, run)


async def test_first_screenshots_are_the_same_in_two_browsers() -> None:
    seeds = (0, 1_000_000_000)
    first = await first_screens(SAMPLE, seeds, MiniWoBConfig(pages=4))
    second = await first_screens(SAMPLE[::-1], seeds, MiniWoBConfig(pages=3, browsers=2))
    assert [job for job in first if first[job] != second[job]] == []
    assert len(set(first.values())) > 1.8 * len(SAMPLE)


def test_what_loading_set_in_motion_has_moved_before_the_first_screenshot(shared: SharedPool) -> None:
    """The cube's page turns its sides 20 ms after loading; a page seen sooner would show them as they were."""
    turned = "document.getElementsByClassName('cube-image')[0].style.transform"

    async def run(env: MiniWoBEnvironment) -> None:
        await env.reset(as_task("click-button"), 0)
        for _ in range(20):
            await env.opened.page.goto(task_url("drag-cube"))
            assert await env.evaluate(f"holotron.start(0, 0).then(() => {turned})") == "rotate(1122deg)"
        await env.close()

    with_env(shared, run)


def test_what_happened_before_leaves_no_trace(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        drag = parse_action('{"action":"drag","x":190,"y":287,"to_x":565,"to_y":716}')
        for task in ("click-button", "click-menu", "copy-paste", "click-option"):
            clean = (await env.reset(as_task(task), 5)).image
            for action in (click(20, 62), Type(text="x"), drag, hover(20, 62)):
                await env.act(action)
            assert (await env.reset(as_task(task), 5)).image == clean, task

    with_env(shared, run)


def test_a_page_that_is_kept_plays_as_one_just_loaded(shared: SharedPool) -> None:
    # Typing, ticking, and an episode that is left in the middle; then one in which the keys come first.
    acts = [Type(text="ada", x=300, y=500), Press(keys="Tab"), Press(keys="Control+z"), click(20, 180), hover(30, 90)]

    async def run(env: MiniWoBEnvironment) -> None:
        async def played(task: str, seed: int, actions: Sequence[Action]) -> tuple[list[bytes], bool]:
            screens = [(await env.reset(as_task(task), seed)).image]
            kept = await env.evaluate("holotron.kept === (holotron.kept = true)")
            screens += [(await env.step(action))[0].image for action in actions]
            return screens, kept

        for task in ("login-user", "click-checkboxes", "click-tab-2"):
            plans = [(1, acts), (2, acts[1:]), (1, acts[::-1])]
            env.config = MiniWoBConfig(restarts=frozenset())
            loaded = [await played(task, *plan) for plan in plans]
            env.config = MiniWoBConfig()
            await env.reset(as_task("click-test"), 0)
            again = [await played(task, *plan) for plan in plans]
            assert [kept for _, kept in loaded + again] == [False] * 4 + [True] * 2
            assert [screens for screens, _ in loaded] == [screens for screens, _ in again], task

    with_env(shared, run)


def test_a_page_that_does_not_come_to_rest_is_loaded_again(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        for left_behind in ("setInterval(() => {}, 10000)", "document.body.append(document.createElement('iframe'))"):
            await env.reset(as_task("click-test"), 0)
            await env.evaluate(f"holotron.kept = true, {left_behind}, 0")
            await env.reset(as_task("click-test"), 1)
            assert await env.evaluate("holotron.kept === undefined"), left_behind
        await env.evaluate("holotron.kept = true")
        await env.reset(as_task("click-test"), 2)
        assert await env.evaluate("holotron.kept")

    with_env(shared, run)


def test_a_page_that_waits_for_the_policy_draws_no_clock(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        for config, drawn in ((MiniWoBConfig(), False), (MiniWoBConfig(time_limit="task"), True)):
            env.config = config
            await env.reset(as_task("click-test"), 0)
            change = "new MutationObserver(() => done(true)).observe(document.body, {childList: true, subtree: true})"
            assert await env.evaluate(f"new Promise(done => {{ {change}; setTimeout(done, 1500, false) }})") is drawn

    with_env(shared, run)


def test_tasks_end_as_the_package_says_when_played_at_random() -> None:
    endings = asyncio.run(random_endings(SAMPLE, 3, MiniWoBConfig(pages=4, time_limit=1.0)))
    assert [ending for ending in endings if not ending.sane] == []
    assert len({ending.raw_reward for ending in endings}) > 1
    assert all(ending.raw_reward == -1 for ending in endings if ending.reason == "timed out")


def test_an_episode_ends_once(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        await env.reset(as_task("click-test"), 0)
        x, y = at(await PageInspector(env).one("#subbtn"))
        await env.act(DoubleClick(x=x, y=y))  # the second click meets the cover, which would start another episode
        result = await env.result()
        assert (result.done, result.raw_reward) == (True, 1.0)
        assert 0 < result.reward <= 1
        await env.act(click(80, 100))
        await env.evaluate("core.startEpisodeReal()")
        assert await env.result() == result
        await env.reset(as_task("click-test"), 0)
        assert not (await env.result()).done

    with_env(shared, run)


def test_time_runs_out_only_when_asked_to(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        await env.reset(as_task("enter-password"), 0)
        await env.act(Wait(seconds=0.1))
        assert not (await env.result()).done
        assert await env.evaluate("core.EPISODE_MAX_TIME") > 10**9

        env.config = MiniWoBConfig(time_limit="task")
        await env.reset(as_task("enter-password"), 0)
        assert await env.evaluate("core.EPISODE_MAX_TIME") == 15000

        env.config = MiniWoBConfig(time_limit=0.5)
        await env.reset(as_task("enter-password"), 0)
        await env.evaluate("new Promise(done => setTimeout(done, 600))")
        result = await env.result()
        assert (result.done, result.raw_reward, result.reason) == (True, -1.0, "timed out")

    with_env(shared, run)


def test_the_clock_starts_at_a_fixed_moment_and_then_runs(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        await env.reset(as_task("terminal"), 0)
        assert "Mon Jan 01 2024" in await env.evaluate("document.querySelector('#terminal-contents').innerText")
        then = await env.evaluate("[Date.now(), new Date().getTime(), Date().slice(0, 15), new Date(0).getTime()]")
        assert then[2:] == ["Mon Jan 01 2024", 0]
        assert abs(then[0] - then[1]) <= 1
        assert await env.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone") == "UTC"
        await env.act(Wait(seconds=0.1))
        assert 90 < await env.evaluate("Date.now()") - then[0] < 60_000

    with_env(shared, run)


def test_a_native_list_is_used_by_keys(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        for keys in ([Press(keys="ArrowDown", repeat=2), Press(keys="Enter")], None):
            await env.reset(as_task("choose-list"), 7)
            names = await env.evaluate("[...document.querySelectorAll('option')].map(o => o.textContent)")
            await env.act(click_on(await PageInspector(env).one("#options")))
            for action in keys or [Type(text=names[2], enter=True)]:  # by arrows, then by typing ahead
                await env.act(action)
            assert await env.evaluate("document.getElementById('options').selectedIndex") == 2

    with_env(shared, run)


def test_pages_do_not_share_a_clipboard() -> None:
    async def copy(env: MiniWoBEnvironment, seed: int, everyone: asyncio.Barrier) -> bool:
        await env.reset(as_task("copy-paste"), seed)
        page = PageInspector(env)
        await env.act(click_on(await page.one("#to-copy")))
        for keys in ("Control+a", "Control+c"):
            await env.act(Press(keys=keys))
        await everyone.wait()  # all have copied before anyone pastes
        await env.act(click_on(await page.one("#answer-input")))
        await env.act(Press(keys="Control+v"))
        original, pasted = [(await page.one(selector)).value for selector in ("#to-copy", "#answer-input")]
        return original == pasted != ""

    async def run(pool: MiniWoBPool) -> list[bool]:
        everyone = asyncio.Barrier(3)
        return await asyncio.gather(*(copy(env, seed, everyone) for seed, env in enumerate(pool.envs)))

    assert with_pages(run, pages=3) == [True, True, True]


def test_primitives_do_what_they_say(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        await env.reset(as_task("scroll-text"), 1)
        x, y = at((await PageInspector(env).one("textarea")).center)
        await env.act(Scroll(direction="down", amount=10, x=x, y=y))
        assert await env.evaluate("document.querySelector('textarea').scrollTop") == 21
        await env.reset(as_task("click-test"), 0)
        await env.evaluate(
            "window.seen = [], ['mousemove', 'dblclick', 'contextmenu', 'mousedown', 'mouseup'].forEach(name =>"
            " addEventListener(name, e => seen.push([e.type, e.clientX, e.clientY, e.button])))"
        )
        await env.act(hover(10, 70))
        await env.click(12, 72, "right")
        await env.click(14, 74, count=2)
        await env.drag((20, 80), (40, 100), steps=4)
        seen = await env.evaluate("seen")
        assert ["mousemove", 10, 70, 0] in seen
        assert ["contextmenu", 12, 72, 2] in seen
        assert ["dblclick", 14, 74, 0] in seen
        assert [e[:3] for e in seen[-6:]] == [
            ["mousedown", 20, 80],
            ["mousemove", 25, 85],
            ["mousemove", 30, 90],
            ["mousemove", 35, 95],
            ["mousemove", 40, 100],
            ["mouseup", 40, 100],
        ]
        with pytest.raises(ActionFailed, match="outside the task's area"):
            await env.click(160, 10)
        with pytest.raises(ActionFailed, match="outside the task's area"):
            await env.hover(-1, 5)
        with pytest.raises(ActionFailed, match="outside the task's area"):
            await env.drag((1, 1), (5, 210))
        with pytest.raises(ActionFailed, match="outside the task's area"):
            await env.scroll(0, 5, (math.nan, 5))
        with pytest.raises(ActionFailed, match="unknown key in 'Entr'"):
            await env.press("Entr")
        with pytest.raises(ActionFailed, match="back does nothing here: the task is one page without an address bar"):
            await env.act(parse_action('{"action":"back"}'))
        with pytest.raises(MiniWoBError, match="no MiniWoB"):
            await env.reset(Task(text="", name="click-nothing"), 0)
        with pytest.raises(MiniWoBError, match="ReferenceError"):
            await env.evaluate("nothing.there")
        assert not (await env.result()).done  # none of these mistakes harmed the page

    with_env(shared, run)


def test_an_observation_waits_for_animations(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        await env.reset(as_task("click-collapsible"), 2)
        first, _ = await env.step(click_on(await PageInspector(env).one("#area h3")))
        await env.act(Wait(seconds=0.5))
        assert (await env.observe()).image == first.image

    with_env(shared, run)


def test_a_picture_that_loads_late_is_seen(shared: SharedPool) -> None:
    """A message opened in a new page shows pictures that the browser then loads, which takes long on a busy machine."""

    async def run(env: MiniWoBEnvironment) -> None:
        async def opened() -> bytes:
            await env.reset(as_task("email-inbox"), 0)
            return (await env.step(click(50, 120)))[0].image

        env.config = MiniWoBConfig(restarts=frozenset())
        quick, page, delayed = await opened(), env.opened.page, list[str]()

        async def late(route: Route) -> None:
            delayed.append(route.request.url)
            await asyncio.sleep(0.3)
            await route.continue_()

        await page.route("**/*.png", late)
        try:
            assert await opened() == quick
            assert delayed
        finally:
            await page.unroute("**/*.png", late)

    with_env(shared, run)


def test_the_caret_does_not_blink(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        await env.reset(as_task("enter-text"), 0)
        seen, _ = await env.step(click_on(await PageInspector(env).one("#tt")))
        for _ in range(3):
            await env.act(Wait(seconds=0.3))
            assert (await env.observe()).image == seen.image

    with_env(shared, run)


def test_a_page_that_was_left_has_failed(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        await env.reset(as_task("click-test"), 0)
        await env.evaluate("setTimeout(() => location.reload(), 200), 0")
        await env.result()  # waits for the short timer, and is asking when the page goes
        await env.act(Wait(seconds=0.3))
        result = await env.result()
        assert (result.done, result.raw_reward, result.reason) == (True, -1.0, "the page was left")
        await env.reset(as_task("click-test"), 0)
        assert not (await env.result()).done

    with_env(shared, run)


def test_nothing_outside_can_be_reached(shared: SharedPool) -> None:
    async def run(env: MiniWoBEnvironment) -> None:
        heard = []
        server = await asyncio.start_server(lambda reader, writer: heard.append(writer), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        await env.reset(as_task("click-test"), 0)
        for url in ("http://example.com/", f"http://127.0.0.1:{port}/", f"http://localhost:{port}/"):
            assert await env.evaluate(f"fetch('{url}', {{mode: 'no-cors'}}).then(() => 'in', () => 'out')") == "out"
            picture = f"(p => {{ p.src = '{url}'; return p.decode().then(() => 'in', () => 'out'); }})(new Image())"
            assert await env.evaluate(picture) == "out"
        assert heard == []
        server.close()

    with_env(shared, run)
