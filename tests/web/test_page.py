"""The page in a real browser: what a person sees and does."""

from __future__ import annotations

import pytest

from holotron.actions.action import Click, DoubleClick, Select, Type
from holotron.episodes.record import Episode
from holotron.episodes.store import EpisodeStore
from holotron.web.report import write_report
from tests.web import samples
from tests.web.browser import Watched, fragment, id_of, serving, text, until, watching


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    return samples.make_store(tmp_path_factory.mktemp("web") / "nightly-rollout")


async def walk_through(watched: Watched, store: EpisodeStore) -> None:
    """What must be the same in every form of the page: list, filters, an episode, keys, addresses, a download."""
    sign_in, count = id_of(store, "sign-in"), 13
    page = await watched.open()
    # The list, and what it counts.
    assert await page.locator(".row").count() == count
    assert await text(page, ".row >> nth=0") == (
        'Success Sign in as "ada" with the password "lovelace". shopfront / sign-in · seed 1 1 5 9.4 s '
        "holotron-nano · v42 " + await text(page, ".row >> nth=0 >> .cell-started")
    )
    assert await text(page, "#rate") == "60.0%"
    # Filters: by outcome, benchmark, task and words, and back.
    await page.click("[data-outcome=failed]")
    assert await page.locator(".row .outcome-failed").count() == await page.locator(".row").count() == 4
    assert await text(page, "#rate") == "0%"
    await page.click("[data-outcome='']")
    await page.select_option("#benchmark", "planboard")
    assert await page.locator(".row").count() == 1
    assert await page.locator("#task option").all_inner_texts() == ["All tasks", "move-card (1)"]
    await page.click("#clear")
    await page.keyboard.press("Escape")  # leaves the empty search field
    await page.keyboard.press("/")
    await page.keyboard.type("basket  MRS")
    assert await page.locator(".row").count() == 3
    assert await fragment(page) == "?q=basket++MRS"
    await page.fill("#search", "nothing like this")
    assert await text(page, "#empty") == "No episode matches these filters."
    await page.fill("#search", "")
    # Sorting.
    await page.click("[data-column=duration]")
    assert "Sign in as grace" in await text(page, ".row >> nth=0")
    await page.click("[data-column=duration]")
    assert "3.0 s" in await text(page, ".row >> nth=0")
    await page.click("[data-column=started]")
    # With keys: to the first row, open it, go through its steps.
    await page.focus("#search")
    await page.keyboard.press("Enter")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".sentence")
    assert await text(page, ".sentence") == 'Click "User name" (500, 419)'
    assert await fragment(page) == f"{sign_in}/1"
    await until(page, "document.querySelector('.screenshot').naturalWidth === 1280")
    await page.keyboard.press("ArrowRight")
    assert await text(page, ".sentence") == 'Type "ada" into (500, 419)'
    assert await text(page, ".marks-label") == "ada"
    await page.keyboard.press("End")
    assert "The account page names ada" in await text(page, ".callout-feedback")
    await page.keyboard.press("ArrowLeft")
    assert await text(page, ".marks-banner") == "Enter"
    await page.keyboard.press("ArrowLeft")
    assert (
        await text(page, ".panel-step .code >> nth=0")
        == '{"action":"type","text":"lovelace","x":500,"y":556,"clear":true}'
    )
    panel = await text(page, ".panel-step")
    for words in (
        "Note The user name is filled in.",
        "observe 150 ms think 820 ms act 240 ms",
        "prompt 4,100 cached 2,790 generated 54",
        "weights v42",
    ):
        assert words in panel
    # Reloaded, the address leads to the same step.
    assert await fragment(page) == f"{sign_in}/3"
    await page.reload()
    await page.wait_for_selector(".sentence")
    assert await text(page, ".counter") == "3 / 5"
    # The next episode and back, then the list with the focus where it was.
    await page.keyboard.press("ArrowDown")
    await until(page, "document.querySelector('h1.episode-title').textContent.includes('grace')")
    await page.wait_for_selector(".sentence")
    await page.keyboard.press("ArrowRight")
    assert "The click hit nothing" in await text(page, ".callout-error")
    assert "A pop-up was blocked" in await text(page, ".panel-step .callout-notice")
    await page.focus("[aria-label='Episode before']")
    await page.keyboard.press("Enter")
    await until(page, "document.querySelector('h1.episode-title').textContent.includes('ada')")
    assert await page.evaluate("document.activeElement.className") == "episode-title", "the button is of no use now"
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowUp")
    await until(page, "document.querySelector('h1.episode-title').textContent.includes('ada')")
    await page.wait_for_selector(".sentence")
    async with page.expect_download() as download:
        await page.click("[aria-label='Download episode as JSON']")
    path = await (await download.value).path()
    assert Episode.model_validate_json(path.read_text()) == store.read(sign_in)
    await page.keyboard.press("Escape")
    assert await page.evaluate("document.activeElement.textContent") == 'Sign in as "ada" with the password "lovelace".'


async def test_list_filters_steps_and_addresses(store):
    with serving(store) as home:
        async with watching(home) as watched:
            await walk_through(watched, store)


@pytest.mark.parametrize("name", ["report", "report.html"])
async def test_a_report_opened_from_disk_does_the_same_without_the_network(store, tmp_path, name):
    report = write_report(store, tmp_path / name)
    async with watching(report.page.as_uri(), offline=True) as watched:
        await walk_through(watched, store)
        if name.endswith(".html"):
            assert {url for url in watched.requests if not url.startswith(("data:", "blob:"))} == {watched.home}
        else:
            watched.home = tmp_path.as_uri()
    assert not any(url.startswith("http") for url in watched.requests)


async def test_marks_are_where_the_action_was(tmp_path):
    store = EpisodeStore(tmp_path / "store", sync="never")
    with samples.begin(store, "Marks.", "marks", 1000.0) as writer:
        for index, action in enumerate(
            (
                Click(x=250, y=500, button="right"),
                DoubleClick(x=999, y=0),
                Type(text="a\nb", enter=True),
                Select(x=0, y=999, option="B"),
            )
        ):
            writer.add_step(samples.a_step(index, action, ""), samples.board(False))
    samples.write_drag(store, 2000.0)
    with serving(store) as home:
        async with watching(home) as watched:
            page = await watched.open(f"#{id_of(store, 'marks')}/1")
            frame = await page.locator(".frame").bounding_box()
            assert abs(frame["width"] / frame["height"] - 1.6) < 0.01
            dot = await page.locator(".dot").bounding_box()
            assert abs(dot["x"] + dot["width"] / 2 - (frame["x"] + frame["width"] * 0.25)) < 1
            assert abs(dot["y"] + dot["height"] / 2 - (frame["y"] + frame["height"] * 0.5)) < 1
            assert await text(page, ".marks-label") == "right button"
            for place, words in ((1, "2×"), (2, "⌨ a ⏎ b ⏎"), (3, "▾ B")):
                await page.keyboard.press("ArrowRight")
                assert await text(page, ".marks") == words, place
                box = await page.locator(".marks p").bounding_box()
                assert box["x"] >= frame["x"] - 1
                assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1
            # At its actual size the marks move with the picture.
            await page.keyboard.press("Home")
            await page.keyboard.press("z")
            await until(page, "document.querySelector('.frame').clientWidth === 1280")
            await until(page, "document.querySelector('.dot').cx.baseVal.value === 320")
            await page.evaluate(f"location.hash = '#{id_of(store, 'move-card')}/2'")
            await page.wait_for_selector(".line.arrow")


async def test_playing_copying_and_help(store):
    with serving(store) as home:
        async with watching(home, permissions=["clipboard-read", "clipboard-write"]) as watched:
            page = await watched.open(f"#{id_of(store, 'sign-in')}/4")
            await page.wait_for_selector(".sentence")
            await page.keyboard.press("c")
            await page.wait_for_selector(".copied")
            assert await page.evaluate("navigator.clipboard.readText()") == '{"action":"press","keys":"Enter"}'
            await page.keyboard.press("p")
            assert await page.get_attribute(".play", "aria-label") == "Pause"
            await until(page, "location.hash.endsWith('/5')")
            assert await page.get_attribute(".play", "aria-label") == "Play", "it ends with the last step"
            await page.keyboard.press("?")
            assert await page.is_visible("#help")
            await page.keyboard.press("Escape")
            assert not await page.is_visible("#help")
            assert await page.is_visible(".sentence"), "Esc closes one thing at a time"
            await page.keyboard.press("/")
            assert await page.evaluate("document.activeElement.id") == "search"


async def test_damaged_and_unknown_episodes_break_nothing(store):
    with serving(store) as home:
        async with watching(home) as watched:
            page = await watched.open("#shopfront-broken.3.0.0123456789ab")
            await page.wait_for_selector(".callout-error")
            assert "not valid JSON" in await text(page, ".callout-error")
            for bad in ("#no-such/1", "#../../etc", "#%E0%A4%A", "#?sort=constructor&outcome=toString", "#x/-1"):
                await page.goto("about:blank")
                await watched.open(bad)
                assert await page.locator(".row").count() == 13, bad
        watched.requests.clear()
