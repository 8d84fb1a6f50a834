"""The page where it is hard: while episodes are written, with hostile texts, on small screens, with very many."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page

from holotron.actions.action import Click
from holotron.episodes.record import Outcome
from holotron.episodes.store import EpisodeStore
from holotron.web.report import write_report
from tests.web import samples
from tests.web.browser import Watched, id_of, serving, text, until, watching


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    return samples.make_store(tmp_path_factory.mktemp("web") / "nightly-rollout")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is such a place: thousands of files are slow on a disk others use too."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holotron-test-") as name:
        yield Path(name)


async def test_it_follows_while_episodes_are_written(tmp_path):
    store = samples.make_store(tmp_path / "store", more=0)
    for number in range(40):
        samples.write_short(store, 3 * number, 1000.0 + number)
    with serving(store) as home:
        async with watching(home) as watched:
            page = await watched.open()
            await page.evaluate("scrollTo(0, 900)")
            await until(page, "document.querySelector('.row').getBoundingClientRect().top < 0")
            place = "[...document.querySelectorAll('.row')].find((row) => row.getBoundingClientRect().top > 100)"
            before = await page.evaluate(
                f"(() => {{ const row = {place}; return [row.innerText, row.getBoundingClientRect().top] }})()"
            )
            with samples.begin(store, "A new one.", "new", time.time()) as writer:
                await page.wait_for_selector("#newer:visible")
                after = await page.evaluate(
                    f"(() => {{ const row = {place}; return [row.innerText, row.getBoundingClientRect().top] }})()"
                )
                assert after == before, "what one looks at stays where it is"
                await page.click("#newer")
                await page.click("text=A new one.")
                await page.wait_for_selector("text=No steps yet.")
                for index in range(2):
                    writer.add_step(samples.a_step(index, Click(x=5, y=5), f"thought {index}"), samples.board(False))
                    await until(
                        page,
                        "(number) => document.querySelector('.counter').textContent === `${number} / ${number}`",
                        index + 1,
                    )
                await page.keyboard.press("Home")
                writer.add_step(samples.a_step(2, Click(x=5, y=5), "thought 2"), samples.board(True))
                await until(page, "document.querySelector('.counter').textContent === '1 / 3'")
                assert await text(page, ".panel-step .prose") == "thought 0", "who looked elsewhere is left there"
                assert await page.locator(".thumb").count() == 3
                assert await text(page, ".episode-line .badge") == "Running"
                writer.finish(Outcome(reason="done", success=True, reward=1.0))
            await page.wait_for_selector(".episode-line .outcome-success")
            await page.keyboard.press("Escape")
            assert "Success A new one." in await text(page, ".row >> nth=0")


async def test_hostile_texts_are_only_texts(tmp_path):
    store = EpisodeStore(tmp_path / "store", sync="never")
    samples.write_evil(store, 1000.0)
    pages = [write_report(store, tmp_path / name).page.as_uri() for name in ("report", "report.html")]

    async def look(watched: Watched) -> None:
        page = await watched.open()
        assert await page.inner_text(".row-link") == samples.EVIL
        assert await page.title() in ("store · Holotron",)
        await page.select_option("#benchmark", samples.EVIL)
        await page.click(".row-link")
        await page.wait_for_selector(".sentence")
        for _ in range(4):
            panel = await page.inner_text(".panel")
            assert panel.count(samples.EVIL) >= 8
            assert await page.evaluate("window.pwned === undefined")
            await page.keyboard.press("ArrowRight")
        links = await page.eval_on_selector_all("a", "links => links.map((link) => link.getAttribute('href'))")
        assert all(link.startswith("#evil") for link in links)
        images = await page.eval_on_selector_all("img", "images => images.map((image) => image.src)")
        assert not any(image.endswith("/x") for image in images)
        # Even a page that tried could not make markup of a text.
        tried = (
            "() => { try { document.body.innerHTML = '<b>x</b>'; return 'made' } catch (error) { return error.name } }"
        )
        assert await page.evaluate(tried) == "TypeError"
        watched.problems[:] = [problem for problem in watched.problems if "TrustedHTML" not in problem]

    with serving(store) as home:
        for address in (home, *pages):
            async with watching(address) as watched:
                await look(watched)
                watched.home = address.removesuffix("index.html")


OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNNAMED = """() => [...document.querySelectorAll('button, a[href], input, select, [tabindex="0"]')]
  .filter((element) => element.checkVisibility())
  .filter((element) => !(element.getAttribute('aria-label') || element.innerText?.trim() || element.labels?.length))
  .map((element) => element.outerHTML)"""
INTERACTIVE = """() => [...document.querySelectorAll('button:enabled, a[href], input, select, [tabindex="0"]')]
  .filter((element) => element.checkVisibility()).map((element, index) => (element.dataset.stop = index))"""


async def tab_stops(page: Page) -> tuple[set[str], set[str]]:
    """What can be used, and what Tab leads to."""
    wanted = {str(number) for number in await page.evaluate(INTERACTIVE)}
    await page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(len(wanted) + 3):
        await page.keyboard.press("Tab")
        stop = await page.evaluate("document.activeElement.dataset.stop")
        reached |= {stop} if stop is not None else set()
    return wanted, reached


async def test_small_screens_names_and_tab_stops(store):
    sign_in = id_of(store, "sign-in")
    with serving(store) as home:
        async with watching(home, {"width": 360, "height": 740}) as watched:
            for fragment_ in ("", f"#{sign_in}/3", f"#{id_of(store, 'find-price')}/1"):
                await watched.page.goto("about:blank")
                page = await watched.open(fragment_)
                await page.wait_for_selector(".sentence" if fragment_ else ".row")
                for width in (360, 390, 700, 800, 1000, 1100, 1440):
                    await page.set_viewport_size({"width": width, "height": 740})
                    assert await page.evaluate(OVERFLOW) <= 0, (fragment_, width)
            for width in (360, 1440):
                await page.set_viewport_size({"width": width, "height": 740})
                for fragment_ in ("", f"#{sign_in}/2"):
                    await page.goto("about:blank")
                    await watched.open(fragment_)
                    await page.wait_for_selector(".sentence" if fragment_ else ".row")
                    assert await page.evaluate(UNNAMED) == []
                    wanted, reached = await tab_stops(page)
                    assert len(wanted) > 10
                    assert wanted <= reached, (width, fragment_, wanted - reached)
        watched.requests.clear()


async def test_ten_thousand_episodes_open_in_less_than_two_seconds(memory):
    store = samples.write_many(memory / "store", 10_000)
    with serving(store) as home:
        async with watching(home) as watched:
            page = await watched.open()
            await until(page, "document.querySelectorAll('.row').length > 5")
            opened = await page.evaluate("performance.now()")
            assert await text(page, "[data-outcome='']") == "All 10,000"
            assert await page.locator(".row").count() < 60
            started = time.monotonic()
            await page.fill("#search", "book 7777")
            assert await page.locator(".row").count() == 1
            searched = time.monotonic() - started
            await page.fill("#search", "")
            await page.evaluate("scrollTo(0, 1e9)")
            await page.wait_for_selector("text=Put book 0 into the basket.")
    print(f"\n10,000 episodes: opened after {opened:.0f} ms, searched in {searched * 1000:.0f} ms")
    assert opened < 2000
