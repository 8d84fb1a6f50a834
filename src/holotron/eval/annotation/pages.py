"""Pages in a browser: a screenshot, and what the DOM says is on it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, Self

from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.errors import EnvError
from holotron.env.safety.policy import SafetyPolicy, origin_of
from holotron.episodes.replay import TOLERANCE, compare
from holotron.eval.annotation.inputs import InputError
from holotron.suites.screens.labels import ScreenElement, from_page
from holotron.suites.screens.rendering import LABELS, smallest_side

TRIES = 3  # in which a page must stand still for a moment


class PageSource:
    """Looks at addresses, each in a context of its own. allow_private: hosts on this machine or a private network."""

    def __init__(self, size: tuple[int, int], browsers: int = 1, allow_private: tuple[str, ...] = ()) -> None:
        self._size, self._private = size, allow_private
        self._browsers = Browsers(browsers)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._browsers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def look(self, url: str, size: tuple[int, int] | None = None) -> tuple[bytes, tuple[ScreenElement, ...]]:
        """The screenshot and its elements, which were the same before and after it; InputError where there is none."""
        width, height = size or self._size
        options = EnvOptions(width=width, height=height, safety=SafetyPolicy([origin_of(url)], self._private))
        ask = f"({LABELS})({width}, {height}, {smallest_side(width)})"
        try:
            async with await BrowserEnv.open(self._browsers, options) as env:
                await env.goto(url)
                before: Any = await env.evaluate(ask)
                for _ in range(TRIES):
                    shot = await env.observe()
                    after: Any = await env.evaluate(ask)
                    if before == after:
                        return shot.image, from_page(after)[0]
                    before = after
        except EnvError as error:
            raise InputError(f"{url} cannot be looked at: {error}") from error
        raise InputError(f"{url} does not stand still: its elements moved while it was looked at")

    async def look_again(self, url: str, png: bytes, size: tuple[int, int]) -> tuple[ScreenElement, ...] | None:
        """The elements of a page that was seen before; None where it looks otherwise now, or is gone."""
        try:
            now, elements = await self.look(url, size)
        except InputError:
            return None
        return elements if compare(png, now).share <= TOLERANCE else None
