"""The tabs of one browser context: which are open, which is current, and what happens in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from playwright.async_api import BrowserContext, CDPSession, Dialog, Error, FileChooser, Page
from playwright.async_api import Download as PlaywrightDownload

from holotron.env.browser.event_log import EventLog
from holotron.env.browser.frames import Frames
from holotron.env.browser.isolated_world import IsolatedWorld
from holotron.env.browser.options import EnvOptions
from holotron.env.safety.confirm import Question

POPUP_SECONDS = 2.0
MOST_DIALOGS = 100


class LiveTab:
    """One page with a protocol session of its own."""

    def __init__(self, page: Page, session: CDPSession, frame_id: str, opened_by_page: bool) -> None:
        self.page = page
        self.session = session
        self.frame_id = frame_id
        self.world = IsolatedWorld(session, frame_id)
        self.frames = Frames(page, session)
        self.loading = False
        self.sent_to = ""  # the address of the document it last asked for
        self.is_given_up = False  # closed from outside, and not by itself
        self.opened_by_page = opened_by_page
        self.title = ""
        self.document = 0  # how many it has shown
        self.dialogs = 0  # of the document it shows
        self.logins: set[str] = set()  # requests that were answered with a login


class Tabs:
    """All tabs of a context. The newest that a page opens becomes current; when it goes, the one before it does."""

    def __init__(self, context: BrowserContext, options: EnvOptions, events: EventLog) -> None:
        self._context = context
        self._options = options
        self._events = events
        self._tabs: list[LiveTab] = []
        self._current: LiveTab | None = None
        self._announced = 0
        self._asked_for = 0
        self._adopting = 0
        self._chores: set[asyncio.Task[None]] = set()
        self._closing = False
        self.ask: Callable[[Question], Awaitable[bool]] | None = None  # a person, where a rule says so

    @property
    def current(self) -> LiveTab:
        assert self._current is not None
        return self._current

    @property
    def all(self) -> list[LiveTab]:
        return list(self._tabs)

    @property
    def pending(self) -> bool:
        """Whether a tab is about to open or something is being put right."""
        return self._announced > 0 or bool(self._chores)

    async def start(self) -> None:
        self._context.on("page", self._appeared)
        await self.open()

    async def open(self) -> LiveTab:
        """A new blank tab, which becomes current."""
        self._asked_for += 1
        try:
            page = await self._context.new_page()
        finally:
            self._asked_for -= 1
        tab = await self._attach(page, opened_by_page=False)
        self._current = tab
        return tab

    async def switch(self, tab: LiveTab) -> None:
        await tab.page.bring_to_front()
        self._current = tab

    async def close(self, tab: LiveTab) -> None:
        """Close a tab; if it was the last, a blank one takes its place."""
        await tab.page.close()
        await self._forget(tab)

    async def replace(self, tab: LiveTab) -> None:
        """Close a tab that does not answer and put a blank one in its place."""
        if tab not in self._tabs:
            return
        tab.is_given_up = True
        index, current = self._tabs.index(tab), self._current
        new = await self.open()
        self._tabs.remove(new)
        self._tabs[index] = new
        if current is not tab and current in self._tabs:
            await self.switch(current)
        # A page that is busy for ever still closes, but this does not wait for it.
        self.spawn(_close_quietly(tab.page))

    def spawn(self, chore: Coroutine[Any, Any, None]) -> None:
        """Do something that the next `settle` waits for."""
        if self._closing:
            chore.close()
            return
        task = asyncio.ensure_future(self._quietly(chore))
        self._chores.add(task)
        task.add_done_callback(self._chore_done)

    async def end(self) -> None:
        """Stop putting things right; the context is being closed."""
        self._closing = True
        for task in list(self._chores):
            task.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)

    def _chore_done(self, task: asyncio.Task[None]) -> None:
        self._chores.discard(task)
        self._events.wake()

    @staticmethod
    async def _quietly(chore: Coroutine[Any, Any, None]) -> None:
        with suppress(Error, TimeoutError):  # the page went away, which settles it
            await chore

    # ---- what pages do ----

    def _appeared(self, page: Page) -> None:
        if self._asked_for == 0 and not any(tab.page is page for tab in self._tabs):
            self._announced = max(0, self._announced - 1)
            self.spawn(self._adopt(page))

    async def _adopt(self, page: Page) -> None:
        """Take in a tab that a page opened."""
        if len(self._tabs) + self._adopting >= self._options.most_tabs:
            self._events.notice(f"a new tab was closed: {self._options.most_tabs} are open, which is the limit")
            await page.close()
            return
        self._adopting += 1
        try:
            tab = await self._attach(page, opened_by_page=True)
        finally:
            self._adopting -= 1
        # Pages may ask for windows of any size; screenshots have one.
        await page.set_viewport_size({"width": self._options.width, "height": self._options.height})
        self._current = tab
        # Its first document may have come before the listeners.
        tree = await tab.session.send("Page.getFrameTree")
        self.arrived(tab, tree["frameTree"]["frame"])

    async def _attach(self, page: Page, opened_by_page: bool) -> LiveTab:
        session = await self._context.new_cdp_session(page)
        tree = await session.send("Page.getFrameTree")
        tab = LiveTab(page, session, tree["frameTree"]["frame"]["id"], opened_by_page)
        page.on("dialog", lambda dialog: self.spawn(self._answer(tab, dialog)))
        page.on("download", lambda download: self.spawn(self._download(download)))
        page.on("filechooser", self._dismiss)
        page.on("crash", lambda _: self._crashed(tab))
        page.on("close", lambda _: self.spawn(self._forget(tab)))
        session.on("Page.frameStartedLoading", lambda event: self._loading(tab, event, True))
        session.on("Page.frameStoppedLoading", lambda event: self._loading(tab, event, False))
        session.on("Page.frameNavigated", lambda event: self._navigated(tab, event))
        session.on("Page.windowOpen", lambda event: self._announce(event["url"]))
        await session.send("Page.enable")
        await self.prepare(tab)
        self._tabs.append(tab)
        return tab

    async def prepare(self, tab: LiveTab) -> None:
        """For subclasses: called before a tab is used."""

    def arrived(self, tab: LiveTab, frame: dict[str, Any]) -> None:
        """For subclasses: called when a tab shows another document."""

    async def _forget(self, tab: LiveTab) -> None:
        """A tab is closed."""
        if tab not in self._tabs:
            return
        index = self._tabs.index(tab)
        self._tabs.remove(tab)
        if self._current is tab:
            if self._tabs:
                await self.switch(self._tabs[max(0, index - 1)])
            else:
                await self.open()

    def _announce(self, url: str) -> None:
        """A page opens a tab, which will appear in a moment, or never."""
        if url.startswith("data:"):  # for which no browser opens one
            return
        self._announced += 1
        asyncio.get_running_loop().call_later(POPUP_SECONDS, self._stop_expecting)

    def _stop_expecting(self) -> None:
        self._announced = max(0, self._announced - 1)
        self._events.wake()

    def _loading(self, tab: LiveTab, event: dict[str, Any], loading: bool) -> None:
        if event["frameId"] == tab.frame_id:
            tab.loading = loading
            self._events.wake()

    def _navigated(self, tab: LiveTab, event: dict[str, Any]) -> None:
        if "parentId" not in event["frame"]:
            tab.world.forget()
            tab.dialogs = 0
            tab.document += 1
            self._events.wake()
            self.arrived(tab, event["frame"])

    def _crashed(self, tab: LiveTab) -> None:
        self._events.error(f"the page at {tab.page.url} crashed; a blank page took its place")
        self.spawn(self.replace(tab))

    def _dismiss(self, _: FileChooser) -> None:
        self._events.notice("the page asked for a file; it got none")

    async def _answer(self, tab: LiveTab, dialog: Dialog) -> None:
        tab.dialogs += 1
        if tab.dialogs > MOST_DIALOGS:
            if tab.dialogs == MOST_DIALOGS + 1:
                self._events.error(f"the page at {tab.page.url} opened dialogs without end; it was closed")
                await self.replace(tab)
            return
        accept, text = True, None
        if dialog.type == "confirm":
            accept = self._options.accept_confirms
        elif dialog.type == "prompt":
            text = self._options.prompt_answer
            accept = text is not None
        if accept and dialog.type in ("confirm", "prompt"):
            accept = await self._confirmed(tab, dialog)
            text = text if accept else None
        answer = ("accepted" if accept else "dismissed") if text is None else f"answered {text!r}"
        self._events.dialog(dialog.type, dialog.message, answer)
        await (dialog.accept(text) if accept and text is not None else dialog.accept() if accept else dialog.dismiss())

    async def _confirmed(self, tab: LiveTab, dialog: Dialog) -> bool:
        """Whether a person agrees to what a dialog asks, where a rule says that it is theirs to decide."""
        confirmation, redact = self._options.confirmation, self._options.secrets.redact
        message = redact(dialog.message)
        rule = confirmation.rule_for("", "", message) if confirmation else None
        if rule is None or self.ask is None:
            return True
        action = f"agreeing to the page's {dialog.type}"
        agreed = await self.ask(Question(action, redact(tab.page.url), message, rule))
        if not agreed:
            self._events.refusal("confirmation", action, rule)
        return agreed

    async def _download(self, download: PlaywrightDownload) -> None:
        folder, name = self._options.downloads, download.suggested_filename
        if folder is None:
            self._events.download(download.url, name, "")
            await download.cancel()
            return
        # The name is the server's choice; only its last part is used, and never one that is taken.
        plain = name.replace("\\", "/").rpartition("/")[2].lstrip(".") or "download"
        path, number = folder / plain, 1
        while path.exists():
            path, number = folder / f"{number}-{plain}", number + 1
        await download.save_as(path)
        self._events.download(download.url, name, str(path))


async def _close_quietly(page: Page) -> None:
    async with asyncio.timeout(POPUP_SECONDS):
        await page.close()
