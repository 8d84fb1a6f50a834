"""One agent's browser: an isolated context, acted on in pixels of its viewport."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Self

from playwright.async_api import Error, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from holotron.actions.action import Action, Button
from holotron.actions.keys import parse_keys, playwright_keys
from holotron.env.browser import dom_queries, pickers
from holotron.env.browser.clipboard import CHORDS
from holotron.env.browser.driver import Driver
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.browser.tabs import LiveTab
from holotron.env.environment import Observation, TaskStatus
from holotron.env.errors import ActionFailed, Refused, TabClosed
from holotron.env.executor import Point, Surface, execute
from holotron.env.safety.confirm import Question
from holotron.env.safety.policy import is_local_name, is_private_address
from holotron.env.safety.secrets import split_mentions
from holotron.env.task import Task

# Longer texts are put in at once, as if pasted: a key at a time they would take seconds.
LONGEST_TYPED = 1000
SECONDS_PER_KEY = 0.05
DRAG_STEPS = 10
MOST_REPEATS = 100
ACTIVATING = {"Enter", "Space", " "}
MOVING = {"Tab", "Escape", "Home", "End", "PageUp", "PageDown", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"}
# What fields for dates, times and colours have as their value. What they show, and take as keys, depends on the locale.
FIELD_VALUE = re.compile(r"\d{4}-\d\d(-\d\d)?(T\d\d:\d\d)?|\d{4}-W\d\d|\d\d:\d\d(:\d\d)?|#[\da-fA-F]{6}")
# How a Chromium on Linux is told of a certificate.
TRUST = "to trust one of your own: certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n NAME -i FILE (libnss3-tools)"
# What the browser's own words for a failed navigation mean to a person, where the connection itself tells nothing.
UNREADABLE = {
    "ERR_TOO_MANY_REDIRECTS": "it redirects in circles",
    "ERR_UNSAFE_PORT": "browsers open no pages at this port",
    "ERR_INVALID_HTTP_RESPONSE": "what answers there does not speak HTTP",
    "ERR_EMPTY_RESPONSE": "the server closed the connection without an answer",
    "ERR_CONNECTION_RESET": "the server broke the connection off",
    "ERR_SSL_PROTOCOL_ERROR": "what answers there does not speak TLS; try http://",
    "ERR_ABORTED": "the server answered without a page",
    "Download is starting": "it is a file to download and no page",
}
OVERTAKEN_SECONDS = 1.0  # for a page that loads itself to arrive in the place of what was asked for
# A scheme, and not a host with a port.
SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:(?!\d)")


class BrowserEnv(Surface):
    """A browser of its own for one agent: an environment for any site, and a surface to act on in pixels.

    Actions wait until the page is at rest. `ActionFailed` and `Refused` leave the browser usable; after
    `InfrastructureError` it is not. One action at a time: a second waits for the first.
    """

    reason: ClassVar[str] = "a browser does not know when a task ends"

    def __init__(self, driver: Driver) -> None:
        self.options = driver.options
        self.instruction = ""
        self._driver = driver

    @classmethod
    async def open(cls, browsers: Browsers, options: EnvOptions | None = None) -> Self:
        """A new browser at about:blank. Close it, or use it as an async context manager."""
        return cls(await Driver.open(browsers, options or EnvOptions()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the context and everything that belongs to it. Finishes even when cancelled meanwhile."""
        await self._driver.close()

    # ---- as an environment ----

    async def reset(self, task: Task, seed: int = 0) -> Observation:
        """Go to the task's address. Cookies and tabs of a task before stay: open another BrowserEnv for a clean one."""
        if task.url is None:
            raise ValueError(f"the task {task.text!r} has no url to begin at")
        self.instruction = task.text
        self._driver.introduce()
        await self.goto(task.url)
        return await self._driver.observe(keep=True)

    async def observe(self) -> Observation:
        """The current tab as it is now, and what happened since the last time."""
        return await self._driver.observe()

    def answer_questions_by(self, ask: Callable[[Question], Awaitable[bool]]) -> None:
        """Let somebody else answer what the confirmation's rules ask about."""
        if (confirmation := self._driver.options.confirmation) is not None:
            self._driver.options = replace(self._driver.options, confirmation=replace(confirmation, ask=ask))

    async def act(self, action: Action) -> None:
        await execute(self, action)

    async def status(self) -> TaskStatus:
        """Nothing: a site does not say whether the task is done."""
        return TaskStatus()

    @property
    def size(self) -> tuple[int, int]:
        return self.options.width, self.options.height

    # ---- pointer and keys ----

    async def click(self, x: float, y: float, button: Button = "left", count: int = 1) -> None:
        self._check_point(x, y)
        if self.options.confirmation is not None:
            await self.hover(x, y)  # which may open the menu that the click is for
        await self._driver.confirm(f"click({x:g}, {y:g})", lambda: dom_queries.label_at(self._tab, x, y))

        async def do() -> None:
            if button == "left":
                await pickers.watch_point(self._tab, x, y)
            await self._page.mouse.click(x, y, button=button, click_count=count)
            await self._replace_picker()

        with suppress(TabClosed):  # a button that closes its own tab was clicked
            await self._driver.act("click", do)

    async def hover(self, x: float, y: float) -> None:
        self._check_point(x, y)
        await self._driver.act("hover", lambda: self._page.mouse.move(x, y))

    async def drag(self, start: Point, end: Point) -> None:
        self._check_point(*start)
        self._check_point(*end)
        await self._driver.confirm("drag", lambda: dom_queries.label_at(self._tab, *end))

        async def do() -> None:
            mouse = self._page.mouse
            await mouse.move(*start)
            await mouse.down()
            try:
                await mouse.move(*end, steps=DRAG_STEPS)
            finally:
                await mouse.up()

        await self._driver.act("drag", do)

    async def scroll(self, dx: float, dy: float, at: Point | None = None) -> None:
        x, y = at or (self.options.width / 2, self.options.height / 2)
        self._check_point(x, y)

        async def do() -> None:
            await self._page.mouse.move(x, y)
            await self._page.mouse.wheel(dx, dy)

        await self._driver.act("scroll", do)

    async def type_text(self, text: str) -> None:
        """Type where the focus is. `{{secret:NAME}}` stands for a secret, which only its own origins get."""
        pieces = list(split_mentions(text))
        for _, name in pieces:
            if name is not None and name not in self.options.secrets:
                raise ActionFailed(f"there is no secret named {name!r}")
        if "\n" in text:
            await self._driver.confirm("type_text", lambda: dom_queries.label_of_focus(self._tab))

        async def do() -> None:
            if FIELD_VALUE.fullmatch(text) and await dom_queries.fill(self._tab, text):
                return
            keyboard = self._page.keyboard
            for piece, name in pieces:
                if name is not None:
                    await dom_queries.type_secret(self._tab, name, self.options.secrets[name])
                elif len(piece) > LONGEST_TYPED:
                    await keyboard.insert_text(piece)
                else:
                    await keyboard.type(piece)

        await self._driver.act("type_text", do, self.options.call_seconds + len(text) * SECONDS_PER_KEY)

    async def press(self, keys: str, repeat: int = 1) -> None:
        """Press a key or a chord such as `Enter`, `ctrl+a` or `Shift+Tab`, some times over."""
        chord = read_keys(keys)
        await self._confirm_keys(chord)

        async def do() -> None:
            if chord in pickers.OPENERS:
                await pickers.watch_focus(self._tab)
            for _ in range(min(repeat, MOST_REPEATS)):
                await self._page.keyboard.press(chord)
            if chord in pickers.OPENERS:
                await self._replace_picker()

        with suppress(TabClosed):
            await self._driver.act("press", (lambda: self._driver.with_clipboard(do)) if chord in CHORDS else do)

    async def _confirm_keys(self, chord: str) -> None:
        """Ask about keys that set something off. Those that move about or edit a field do not."""
        key, action = chord.rpartition("+")[2] or "+", f"press({chord})"
        if key in ACTIVATING:
            await self._driver.confirm(action, lambda: dom_queries.label_of_focus(self._tab))
            return
        if key in MOVING or not self._driver.is_asked_about(action):
            return
        if not await self._driver.asked(action, lambda: dom_queries.is_editing(self._tab)):
            await self._driver.confirm(action, None)

    async def select_option(self, x: float, y: float, choice: str | Sequence[str]) -> None:
        """Choose from the native `<select>` at a point, by what the option shows or by its value."""
        self._check_point(x, y)
        choices = [choice] if isinstance(choice, str) else list(choice)
        action = f"select_option({', '.join(choices)})"
        await self._driver.confirm(action, lambda: dom_queries.label_at(self._tab, x, y))
        await self._driver.act("select_option", lambda: dom_queries.select(self._tab, x, y, choices))

    # ---- navigation and tabs ----

    async def goto(self, url: str) -> None:
        """Go to an address; without a scheme, https is meant, or http on this machine."""
        url = complete_address(url)
        rule = self.options.safety.refusal(url)
        if rule is not None:
            self._driver.events.refusal("navigation", url, rule)
            raise Refused(self.options.secrets.redact(f"going to {url} was refused: {rule}"), rule)
        await self._driver.confirm(f"goto({url})", None)
        seconds = self.options.goto_seconds
        before = self._driver.events.last_refusal

        def failed(why: str) -> ActionFailed:
            return ActionFailed(self.options.secrets.redact(f"{url} {why}"))

        async def do() -> None:
            try:
                await self._page.goto(url, wait_until="commit", timeout=seconds * 1000)
            except Error as error:
                # Before refusals: a browser that meets such a certificate asks hosts of its own whether it is online.
                if certificate := re.search(r"ERR_CERT_\w+", error.message):
                    told = f"its certificate is not trusted here ({certificate[0]}); {TRUST}"
                    raise failed(f"could not be loaded: {told}") from None
                last = self._driver.events.last_refusal
                if last is not None and last is not before:
                    raise Refused(f"going to {last.target} was refused: {last.rule}", last.rule) from None
                if (reason := self._driver.problem(url)) is not None:
                    raise failed(f"could not be loaded: {reason}") from None
                if isinstance(error, PlaywrightTimeout):
                    await self._driver.stop_loading(self._tab)
                    raise failed(f"did not answer within {seconds:g} s; it is not waited for any longer") from None
                for sign, words in UNREADABLE.items():
                    if sign in error.message:
                        raise failed(f"could not be loaded: {words}") from None
                raise error

        await self._driver.act("goto", do, seconds + self.options.call_seconds)

    async def back(self) -> None:
        await self._driver.act("back", lambda: self._move_in_history(-1))

    async def forward(self) -> None:
        await self._driver.act("forward", lambda: self._move_in_history(1))

    async def reload(self) -> None:
        async def do() -> None:
            tab, before = self._tab, self._tab.document
            try:
                await tab.page.reload(wait_until="commit")
            except Error as error:
                # Where the page began to load itself at the same moment, that one arrives instead.
                deadline = asyncio.get_running_loop().time() + OVERTAKEN_SECONDS
                is_overtaken = "ERR_ABORTED" in error.message
                if not (is_overtaken and await self._driver.events.wait_for(lambda: tab.document != before, deadline)):
                    raise

        await self._driver.act("reload", do)

    async def wait(self, seconds: float) -> None:
        """Let time pass, up to `EnvOptions.longest_wait`."""
        await asyncio.sleep(max(0.0, min(seconds, self.options.longest_wait)))
        await self._driver.act("wait", None)

    async def new_tab(self, url: str | None = None) -> None:
        if len(self._driver.tabs.all) >= self.options.most_tabs:
            raise ActionFailed(f"{self.options.most_tabs} tabs are open, which is the limit; close one first")
        await self._driver.act("new_tab", self._driver.tabs.open)
        if url is not None:
            await self.goto(url)

    async def switch_tab(self, index: int) -> None:
        await self._driver.act("switch_tab", lambda: self._driver.tabs.switch(self._tab_at(index)))

    async def close_tab(self, index: int | None = None) -> None:
        """Close a tab, the current one if none is named; if it was the last, a blank one takes its place."""
        await self._driver.act(
            "close_tab", lambda: self._driver.tabs.close(self._tab if index is None else self._tab_at(index))
        )

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, for verifiers. Policies must not use it."""
        return await self._driver.asked("evaluate", lambda: self._page.evaluate(expression))

    @property
    def _tab(self) -> LiveTab:
        return self._driver.tabs.current

    @property
    def _page(self) -> Page:
        return self._tab.page

    def _tab_at(self, index: int) -> LiveTab:
        tabs = self._driver.tabs.all
        if not 0 <= index < len(tabs):
            raise ActionFailed(f"there is no tab {index}; there are {len(tabs)}, counted from 0")
        return tabs[index]

    def _check_point(self, x: float, y: float) -> None:
        if not (0 <= x < self.options.width and 0 <= y < self.options.height):
            raise ActionFailed(f"({x:g}, {y:g}) is outside of the {self.options.width}×{self.options.height} viewport")

    async def _replace_picker(self) -> None:
        if (words := await pickers.replace_native(self._tab)) is not None:
            self._driver.events.notice(words)

    async def _move_in_history(self, step: int) -> None:
        history = await self._tab.session.send("Page.getNavigationHistory")
        if not 0 <= history["currentIndex"] + step < len(history["entries"]):
            raise ActionFailed("there is no page to go back to" if step < 0 else "there is no page to go forward to")
        await (self._page.go_back(wait_until="commit") if step < 0 else self._page.go_forward(wait_until="commit"))


def complete_address(text: str) -> str:
    """An address as people write it, with its scheme: https, or http on this machine and private networks."""
    text = text.strip()
    if SCHEME.match(text):
        return text
    host = re.split(r"[/:?#]", text, maxsplit=1)[0].lower()
    return f"http://{text}" if is_local_name(host) or is_private_address(host) else f"https://{text}"


def read_keys(text: str) -> str:
    """A press in any known spelling, for Playwright; `ActionFailed` if it is none."""
    try:
        return playwright_keys(parse_keys(text))
    except ValueError as error:
        raise ActionFailed(f"{text[:80]!r} is no key: {error}") from error
