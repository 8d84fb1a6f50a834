"""The frames inside a page: where they are, and how to run scripts in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from playwright.async_api import CDPSession, Error, Frame, Page

from holotron.env.browser.isolated_world import IsolatedWorld


@dataclass(frozen=True)
class FrameBox:
    """A frame and the box its document fills, in pixels of the page's viewport."""

    world: IsolatedWorld
    left: float
    top: float
    width: float
    height: float

    def holds(self, x: float, y: float) -> bool:
        return self.left <= x < self.left + self.width and self.top <= y < self.top + self.height


class Frames:
    """The frames of one page. Most live in its process; those that do not have sessions of their own."""

    def __init__(self, page: Page, session: CDPSession) -> None:
        self._page = page
        self._session = session
        self._worlds: dict[str, IsolatedWorld] = {}
        self._elsewhere: dict[Frame, CDPSession] = {}

    async def boxes(self) -> list[FrameBox]:
        """Every frame that is shown, outer ones first."""
        if len(self._page.frames) == 1:
            return []
        found = await self._inside(self._session, 0.0, 0.0)
        for frame, session in (await self._sessions()).items():
            with suppress(Error):  # the frame is going
                element = await frame.frame_element()
                box = await element.bounding_box()
                if box is None:
                    continue
                border = await element.evaluate("element => [element.clientLeft, element.clientTop]")
                left, top = box["x"] + border[0], box["y"] + border[1]
                tree = await session.send("Page.getFrameTree")
                world = self._world(session, tree["frameTree"]["frame"]["id"])
                found.append(FrameBox(world, left, top, box["width"], box["height"]))
                found += await self._inside(session, left, top)
        return found

    async def _inside(self, session: CDPSession, left: float, top: float) -> list[FrameBox]:
        """The frames below a session's root that live in the same process."""
        found = []
        tree = await session.send("Page.getFrameTree")
        await session.send("DOM.enable")
        try:
            for frame_id in _below(tree["frameTree"]):
                with suppress(Error):  # not shown, or going
                    owner = await session.send("DOM.getFrameOwner", {"frameId": frame_id})
                    box = await session.send("DOM.getBoxModel", {"backendNodeId": owner["backendNodeId"]})
                    x, y, *_, x2, y2, _, _ = box["model"]["content"]
                    world = self._world(session, frame_id)
                    found.append(FrameBox(world, x + left, y + top, x2 - x, y2 - y))
        finally:
            await session.send("DOM.disable")
        return found

    async def _sessions(self) -> dict[Frame, CDPSession]:
        """Sessions of the frames in other processes."""
        frames = [frame for frame in self._page.frames[1:] if not frame.is_detached()]
        for frame in frames:
            if frame not in self._elsewhere:
                with suppress(Error):  # a frame in its parent's process has no session, and needs none
                    self._elsewhere[frame] = await self._page.context.new_cdp_session(frame)
        self._elsewhere = {frame: session for frame, session in self._elsewhere.items() if frame in frames}
        return self._elsewhere

    def _world(self, session: CDPSession, frame_id: str) -> IsolatedWorld:
        known = self._worlds.get(frame_id)
        if known is None or known.session is not session:
            known = self._worlds[frame_id] = IsolatedWorld(session, frame_id)
        return known


def _below(tree: dict[str, Any]) -> Iterator[str]:
    for child in tree.get("childFrames", ()):
        yield child["frame"]["id"]
        yield from _below(child)
