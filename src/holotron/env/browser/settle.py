"""Waiting until a page has done what an action made it do: on events, never for a fixed time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.async_api import BrowserContext, Error, Page, Request

from holotron.env.browser.event_log import EventLog
from holotron.env.browser.isolated_world import IsolatedWorldGone

if TYPE_CHECKING:
    from holotron.env.browser.tabs import LiveTab, Tabs

QUIET = Path(__file__).with_name("quiet.js").read_text(encoding="utf-8")
# These go on while a page is at rest.
ENDLESS = {"eventsource", "websocket", "media", "ping", "beacon", "manifest", "prefetch"}
QUIET_MS = 30
# After an answer came, its page needs a moment to read it.
AFTER_NETWORK_MS = 25
# How long a document that is being replaced may take to answer again, before the world is asked once more.
REPLACED_SECONDS = 0.05
# How long it may take until another tab is current, when one went away.
CLOSED_SECONDS = 1.0


class NetworkActivity:
    """The requests of a context that began since the last action and are not over."""

    def __init__(self, context: BrowserContext, events: EventLog) -> None:
        self._events = events
        self._pending: dict[Request, Page | None] = {}
        self._background: set[str] = set()
        context.on("request", self._begun)
        context.on("requestfinished", self._over)
        context.on("requestfailed", self._over)
        context.on("page", lambda page: page.on("close", self._drop))

    @property
    def busy(self) -> bool:
        return bool(self._pending)

    def mark(self) -> None:
        """An action begins; what was under way before is not its doing."""
        self._pending.clear()

    def give_up(self) -> None:
        """Requests that did not end in time are not waited for again: long polls outlive every page."""
        self._background.update(map(_place, self._pending))
        self._pending.clear()

    def _drop(self, page: Page) -> None:
        """A page is gone, and some of its requests end without an event."""
        # A request that came before its page was known could be one of them.
        self._pending = {request: of for request, of in self._pending.items() if of not in (page, None)}
        self._events.wake()

    def _begun(self, request: Request) -> None:
        if request.resource_type in ENDLESS or _place(request) in self._background:
            return
        page = None
        with suppress(Error):  # a service worker's request belongs to no page
            page = request.frame.page
        self._pending[request] = page
        self._events.wake()

    def _over(self, request: Request) -> None:
        if self._pending.pop(request, self) is not self:
            self._events.wake()


async def settle(tabs: Tabs, traffic: NetworkActivity, events: EventLog, cap: float, change_cap: float) -> bool:
    """Wait until the current tab is loaded, its requests are over and its document is still; whether it came to that.

    On a page where nothing happens this takes one frame. A tab that an action opens becomes the one waited for.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + cap

    def idle() -> bool:
        return not (traffic.busy or tabs.pending or tabs.current.loading)

    while loop.time() < deadline:
        waited = not idle()
        if waited and not await events.wait_for(idle, deadline):
            break
        tab = tabs.current
        least = AFTER_NETWORK_MS if waited else 0
        try:
            answer = await _ask(tab, least, min(change_cap, deadline - loop.time()), deadline)
        except Error:
            if await events.wait_for(lambda: tabs.current is not tab, loop.time() + CLOSED_SECONDS):  # noqa: B023
                continue  # the tab went, and another is current
            raise
        if answer is None:
            # The document is being replaced: something will happen at once, or has.
            await events.wait_for(lambda: tabs.current.loading, loop.time() + REPLACED_SECONDS)
            continue
        if tabs.current is tab and idle():
            return bool(answer["still"]) and answer["state"] == "complete"
    traffic.give_up()
    return False


async def _ask(tab: LiveTab, least: float, cap: float, deadline: float) -> dict[str, Any] | None:
    """What the quiet script says, or None if its document went away."""
    try:
        async with asyncio.timeout_at(deadline):
            return await tab.world.run(QUIET, QUIET_MS, least, max(cap, 0.0) * 1000)
    except (IsolatedWorldGone, TimeoutError):
        return None


def _place(request: Request) -> str:
    return request.url.partition("?")[0]
