"""Where an environment's actions take place: one at a time, in limited time, failures sorted by whose fault it is."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from playwright.async_api import Error

from holotron.env.browser.event_log import EventLog
from holotron.env.browser.isolated_world import IsolatedWorldGone
from holotron.env.browser.masking import Box, secret_boxes
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers, Lease, finish
from holotron.env.browser.settle import NetworkActivity, settle
from holotron.env.browser.tabs import LiveTab
from holotron.env.environment import Observation, Tab
from holotron.env.errors import ActionFailed, BrowserCrashed, EnvError, InfrastructureError, Refused, TabClosed
from holotron.env.safety.confirm import Question
from holotron.env.safety.egress_proxy import EgressProxy
from holotron.env.safety.guard import GuardedTabs
from holotron.env.safety.secrets import paint_over

T = TypeVar("T")
REPLACE_SECONDS = 30.0
STOP_SECONDS = 5.0
FACTS = "() => [document.title, document.readyState, Boolean(document.fullscreenElement)]"
LEAVE_FULL_SCREEN = "() => document.exitFullscreen().catch(() => {})"
CAPTURES = 6  # a page may ask for the full screen again, and drawing it in its view takes a moment
RESIZE_SECONDS = 0.1


class Driver:
    """A browser context with its egress proxy, its tabs and what happened in them."""

    def __init__(self, lease: Lease, options: EnvOptions, proxy: EgressProxy, events: EventLog) -> None:
        self.options = options
        self.events = events
        self.tabs = GuardedTabs(lease.context, options, events, proxy)
        self._lease = lease
        self._proxy = proxy
        self._traffic = NetworkActivity(lease.context, events)
        self._settled = True
        self._turn = asyncio.Lock()
        self._clipboard = ""
        self._questions = 0  # that a person is being asked
        self._limits: dict[asyncio.Timeout, float] = {}
        self.tabs.ask = self._ask
        self._closed = False

    @classmethod
    async def open(cls, browsers: Browsers, options: EnvOptions) -> Driver:
        events = EventLog(options.secrets.redact)
        proxy = EgressProxy(options.safety, partial(events.refusal, "connection"), options.resolve)
        await proxy.start()
        try:
            lease = await browsers.open_context(
                viewport={"width": options.width, "height": options.height},
                device_scale_factor=1,
                locale=options.locale,
                timezone_id=options.timezone,
                accept_downloads=options.downloads is not None,
                permissions=[],
                # Without this exception the browser would reach its own machine directly.
                proxy={"server": proxy.address, "bypass": "<-loopback>"},
                # A worker that answers for the network hides what a page loads from the count of its requests.
                service_workers="block",
            )
        except BaseException:
            await proxy.close()
            raise
        driver = cls(lease, options, proxy, events)
        driver.introduce()
        try:
            await driver._perform("opening a tab", driver.tabs.start)
        except BaseException:
            await driver.close()
            raise
        return driver

    async def close(self) -> None:
        self._closed = True
        await finish(self._close())

    async def _close(self) -> None:
        await self.tabs.end()
        await self._lease.close()
        await self._proxy.close()

    def introduce(self) -> None:
        """Have the next observation tell which secrets there are."""
        for words in self.options.secrets.introduction():
            self.events.notice(words)

    # ---- acting ----

    async def act(self, what: str, do: Callable[[], Awaitable[Any]] | None, seconds: float | None = None) -> None:
        """Do something, then wait until the page is at rest."""
        async with self._turn:
            self._traffic.mark()
            self.tabs.release()
            try:
                if do is not None:
                    await self._perform(what, do, seconds)
            except (ActionFailed, Refused):
                await self._come_to_rest()
                raise
            await self._come_to_rest()

    async def _come_to_rest(self) -> None:
        options = self.options
        self._settled = await self._wait_for(
            "the wait for the page",
            lambda: settle(self.tabs, self._traffic, self.events, options.settle_seconds, options.change_seconds),
            options.settle_seconds + options.call_seconds,
        )

    async def confirm(self, action: str, look: Callable[[], Awaitable[str]] | None) -> None:
        """Ask before an action, where a rule says so; `look` finds the text it is aimed at."""
        confirmation = self.options.confirmation
        if confirmation is None:
            return
        redact = self.options.secrets.redact

        async def text() -> str:
            return "" if look is None else redact(await self._perform(action, look))

        url, aimed_at = redact(self.tabs.current.page.url), await text()
        rule = confirmation.rule_for(action, url, aimed_at)
        if rule is None:
            return
        if not await self._ask(Question(action, url, aimed_at, rule)):
            self.events.refusal("confirmation", action, rule)
            raise Refused(f"{action} was not confirmed", rule)
        # The answer took a while, and agrees to what was there then.
        if await text() != aimed_at:
            raise ActionFailed(f"the page changed while {action} was being confirmed")

    def is_asked_about(self, action: str) -> bool:
        """Whether a rule names this action itself."""
        confirmation = self.options.confirmation
        return confirmation is not None and confirmation.rule_for(action, "", "") is not None

    async def _ask(self, question: Question) -> bool:
        """Ask a person. A page that waits for the answer does not run out of time meanwhile."""
        assert self.options.confirmation is not None
        self._questions += 1
        for limit in self._limits:
            limit.reschedule(None)
        try:
            return await self.options.confirmation.ask(question)
        finally:
            self._questions -= 1
            now = asyncio.get_running_loop().time()
            for limit, seconds in self._limits.items() if not self._questions else ():
                limit.reschedule(now + seconds)

    async def with_clipboard(self, do: Callable[[], Awaitable[None]]) -> None:
        """Do something with this browser's own clipboard instead of the one that all share."""
        text = await self._lease.clipboard.around(self._clipboard, do)
        # A secret copied from one page must not be pasted into another.
        self._clipboard = self.options.secrets.redact(text)

    def problem(self, url: str) -> str | None:
        """Why nothing came from an address, as far as its connection tells."""
        return self._proxy.problem(url)

    async def asked(self, what: str, do: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question that changes nothing."""
        async with self._turn:
            return await self._perform(what, do)

    async def _wait_for(self, what: str, do: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        with self.tabs.waited_for():
            return await self._perform(what, do, seconds)

    async def _perform(self, what: str, do: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        if self._closed:
            raise InfrastructureError("this browser is closed")
        tab = self.tabs.current if self.tabs.all else None
        seconds = seconds or self.options.call_seconds
        try:
            async with asyncio.timeout(None if self._questions else seconds) as limit:
                self._limits[limit] = seconds
                try:
                    return await do()
                finally:
                    del self._limits[limit]
        except TimeoutError:
            raise ActionFailed(await self._free(tab, what, seconds)) from None
        except IsolatedWorldGone:
            raise ActionFailed(f"the page was replaced during {what}") from None
        except ActionFailed as error:  # its text may quote the page
            raise type(error)(self.options.secrets.redact(str(error))) from None
        except Error as error:
            # Without the original: its text is the driver's and may quote anything.
            raise await self._sorted(error, what, tab) from None

    async def stop_loading(self, tab: LiveTab) -> bool:
        """Leave a tab at the page it shows; whether that page answers.

        While a document is awaited, the browser holds back every script for the page that is still there.
        """
        if not tab.loading:
            return False
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await tab.session.send("Page.stopLoading")
                await tab.world.run("() => 0")
        except (TimeoutError, Error, IsolatedWorldGone):
            return False
        return True

    async def _free(self, tab: LiveTab | None, what: str, seconds: float) -> str:
        """Make a tab that did not answer for so long usable again; what was done, in words."""
        if tab is not None and await self.stop_loading(tab):
            awaited = self.options.secrets.redact(tab.sent_to) or "the next page"
            told = f"{awaited} did not answer within {seconds:g} s; it is not waited for any longer"
            self.events.error(told)
            return told
        await self._replace(tab)
        return f"the page stopped answering during {what}; a blank page took its place"

    async def _replace(self, tab: LiveTab | None) -> None:
        """A page does not answer. If the browser does, only the page is at fault."""
        try:
            if tab is None:
                raise TimeoutError
            async with asyncio.timeout(REPLACE_SECONDS):
                url = tab.page.url
                await self.tabs.replace(tab)
                self.events.error(f"the page at {url} stopped answering; a blank page took its place")
        except (TimeoutError, Error):
            if self._lease.lost:
                raise BrowserCrashed("the browser's process ended") from None
            raise InfrastructureError("the browser does not answer") from None

    async def _sorted(self, error: Error, what: str, tab: LiveTab | None) -> EnvError:
        """Whose fault an error of the driver is."""
        message = error.message.strip().partition("\n")[0]
        closed = "closed" in message
        if self._lease.lost or (closed and not await self._lease.alive()):
            return BrowserCrashed("the browser's process ended")
        if closed:
            by_page = tab is not None and not tab.is_given_up
            return (TabClosed if by_page else ActionFailed)(f"the tab was closed during {what}")
        return ActionFailed(self.options.secrets.redact(f"{what} failed: {message}"))

    # ---- looking ----

    async def observe(self, keep: bool = False) -> Observation:
        """The current tab and what happened since the last time, which with `keep` the next observation tells again."""
        async with self._turn:
            try:
                tab, png, title, state = await self._wait_for("a screenshot", self._look)
            except ActionFailed:  # the page hung or went away, and another takes its place
                await self._come_to_rest()
                tab, png, title, state = await self._wait_for("a screenshot", self._look)
            options, redact = self.options, self.options.secrets.redact
            width, height = _size(png)
            if (width, height) != (options.width, options.height):
                raise InfrastructureError(
                    f"a screenshot is {width}×{height} instead of {options.width}×{options.height}"
                )
            tab.title = redact(title)
            return Observation(
                image=png,
                width=width,
                height=height,
                url=redact(tab.page.url),
                title=tab.title,
                tabs=tuple(
                    Tab(index, redact(other.page.url), other.title, other is tab)
                    for index, other in enumerate(self.tabs.all)
                ),
                load_state=state,
                settled=self._settled,
                **self.events.take(keep),
            )

    async def _look(self) -> tuple[LiveTab, bytes, str, str]:
        tab = self.tabs.current
        for _ in range(CAPTURES):
            boxes = await self._secret_boxes(tab)
            png, (title, state, full_screen) = await asyncio.gather(self._capture(tab), _facts(tab))
            if full_screen:
                # A full screen has a size of its own, and screenshots have the viewport's.
                self.events.notice("the page asked for the full screen; it was put back into its view")
                with suppress(IsolatedWorldGone):
                    await tab.world.run(LEAVE_FULL_SCREEN)
            elif _size(png) == (self.options.width, self.options.height):
                break
            else:  # the page is back in its view, and what is drawn not yet
                await asyncio.sleep(RESIZE_SECONDS)
        if self.options.secrets:
            # What moved while the picture was taken is covered in both places.
            boxes += await self._secret_boxes(tab)
            png = await asyncio.to_thread(paint_over, png, boxes)
        return tab, png, title, state

    async def _capture(self, tab: LiveTab) -> bytes:
        """The page as a PNG. One asked for before a document is replaced may never come, and is asked for anew."""
        while True:
            document = tab.document
            capture = asyncio.ensure_future(
                tab.session.send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
            )
            capture.add_done_callback(lambda _: self.events.wake())
            deadline = asyncio.get_running_loop().time() + self.options.call_seconds
            try:
                await self.events.wait_for(lambda: capture.done() or tab.document != document, deadline)  # noqa: B023
                if capture.done():
                    return base64.b64decode(capture.result()["data"])
            finally:
                capture.cancel()

    async def _secret_boxes(self, tab: LiveTab) -> list[Box]:
        return await secret_boxes(tab, self.options.secrets) if self.options.secrets else []


def _size(png: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", png[16:24])
    return width, height


async def _facts(tab: LiveTab) -> tuple[str, str, bool]:
    """The title, the load state, and whether something of it fills the screen."""
    try:
        title, state, full_screen = await tab.world.run(FACTS)
    except IsolatedWorldGone:
        return tab.title, "loading", False
    return title, state, full_screen
