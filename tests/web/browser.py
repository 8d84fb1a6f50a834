"""A viewer and a Chromium to look at it with."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from playwright.async_api import Page, async_playwright

from holotron.env.browser.chromium import find_chromium, launch_arguments
from holotron.episodes.store import EpisodeStore
from holotron.web.app import address_of, create_app, listen, make_server
from holotron.web.catalog import Catalog

DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@contextmanager
def serving(store: EpisodeStore) -> Iterator[str]:
    """The address of a viewer that runs in a thread."""
    catalog = Catalog(store)
    catalog.rows()
    with serving_app(create_app(catalog)) as address:
        yield address


@contextmanager
def serving_app(app: FastAPI) -> Iterator[str]:
    with listen(0) as listener:
        server = make_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield address_of(listener)
        finally:
            server.should_exit = True
            thread.join(timeout=10)


class Watched:
    """A page, and everything it did that it should not have: errors, and requests to others than its server."""

    def __init__(self, page: Page, home: str) -> None:
        self.page = page
        self.home = home
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("request", lambda request: self.requests.append(request.url))

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.problems.append(text)

    @property
    def strangers(self) -> list[str]:
        return [url for url in self.requests if not url.startswith((self.home, "data:", "blob:"))]

    async def open(self, fragment: str = "") -> Page:
        await self.page.goto(self.home + fragment)
        await self.page.wait_for_selector("body[data-ready]")
        return self.page


@asynccontextmanager
async def watching(home: str, size: dict[str, int] = DESKTOP, **context: Any) -> AsyncIterator[Watched]:
    path, how = find_chromium()
    if path is None:
        pytest.skip(f"no Chromium: {how}")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=str(path), args=launch_arguments())
        made = await browser.new_context(viewport=size, **context)  # type: ignore[arg-type]
        made.set_default_timeout(15_000)
        watched = Watched(await made.new_page(), home)
        yield watched
        await browser.close()
        assert watched.problems == []
        assert watched.strangers == []


def id_of(store: EpisodeStore, name: str) -> str:
    return next(info.id for info in store.list_episodes(on_damage=lambda _: None) if info.task.name == name)


async def text(page: Page, selector: str) -> str:
    return " ".join((await page.inner_text(selector)).split())


async def fragment(page: Page) -> str:
    return (await page.evaluate("location.hash")).removeprefix("#")


async def until(page: Page, condition: str, argument: Any = None) -> None:
    # Not wait_for_function: that evaluates texts inside the page, which the page's policy forbids.
    deadline = time.monotonic() + 90
    while not await page.evaluate(condition, argument):
        assert time.monotonic() < deadline, f"never came true: {condition}"
        await asyncio.sleep(0.03)
