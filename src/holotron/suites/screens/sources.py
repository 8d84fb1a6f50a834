"""Where screens come from, by name."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from pathlib import Path

from holotron.episodes.examples import Example
from holotron.suites.libraries.manifest import require_libraries
from holotron.suites.miniwob.environment import MiniWoBConfig
from holotron.suites.miniwob.pool import MiniWoBPool, miniwob_pool
from holotron.suites.miniwob.tasks import MiniWoBError, html_folder
from holotron.suites.screens.libraries import make_library_page
from holotron.suites.screens.miniwob import draw_miniwob
from holotron.suites.screens.packages import find_files, make_package_page
from holotron.suites.screens.pages import make_page
from holotron.suites.screens.questions import ask
from holotron.suites.screens.rendering import Document, Renderer, RenderingError, Shot
from holotron.suites.screens.widgets import make_widgets

SOURCES = ("widgets", "miniwob", "pages", "packages", "libraries")
REAL = ("packages", "libraries")  # not all of their pages can be drawn
TRIES = 3
REAL_TRIES = 4


class Sources:
    """Makes samples: `async with Sources() as sources: await sources.samples("widgets", 17)`.

    asks: samples of one screen, each with questions of its own. varied: generated pages are
    drawn in views of all sizes.
    """

    def __init__(
        self,
        *,
        folders: tuple[Path, ...] = (),
        held_out: bool = False,
        at_once: int = 3,
        asks: int = 1,
        varied: bool = False,
    ) -> None:
        self._folders, self._held_out, self._at_once, self._asks = folders, held_out, at_once, asks
        self._varied = varied
        self._stack = AsyncExitStack()
        self._files: list[Path] | None = None
        self.renderer = Renderer()
        self._miniwob: MiniWoBPool | None = None

    async def __aenter__(self) -> Sources:
        await self._stack.enter_async_context(self.renderer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def prepare(self, sources: Iterable[str]) -> None:
        """Start what these sources need, before several samples are asked for at once."""
        needed = set(sources)
        if "miniwob" in needed and self._miniwob is None:
            html_folder()  # says so now if the pages are not installed
            pool = miniwob_pool(MiniWoBConfig(pages=self._at_once))
            self._miniwob = await self._stack.enter_async_context(pool)
        if "packages" in needed and self._files is None:
            self._files = find_files(self._folders, held_out=self._held_out)
        if "libraries" in needed:
            require_libraries()

    async def shot(self, source: str, seed: int) -> Shot | None:
        """The screen of a seed; None, and a line that says why, where it cannot be drawn."""
        await self.prepare([source])
        if source in REAL:
            return await self._real_shot(source, seed)
        for trial in range(TRIES):  # these screens can all be drawn: what fails is a browser
            try:
                return await self._made_shot(source, seed)
            except (RenderingError, MiniWoBError) as error:
                print(f"{source} {seed}, try {trial + 1} of {TRIES}: {error}", file=sys.stderr, flush=True)
        return None

    async def _made_shot(self, source: str, seed: int) -> Shot:
        if source == "widgets":
            return await self.renderer.draw(make_widgets(seed))
        if source == "pages":
            return await self.renderer.draw(make_page(seed, held_out=self._held_out, varied=self._varied))
        assert self._miniwob is not None
        return await draw_miniwob(self._miniwob, seed)

    async def _real_shot(self, source: str, seed: int) -> Shot | None:
        """Of the first page that can be drawn and shows something."""
        for trial in range(REAL_TRIES):
            if source == "libraries":
                document: Document | None = make_library_page(seed, trial, held_out=self._held_out)
            else:
                document = make_package_page(self._files or [], seed, trial)
            try:
                if document is not None and (shot := await self.renderer.draw(document)).elements:
                    return shot
            except RenderingError:
                continue
        return None

    async def samples(self, source: str, seed: int) -> list[Example]:
        """Questions about the screen of a seed; none where there is no screen or nothing on it."""
        shot = await self.shot(source, seed)
        return [] if shot is None else self._asked(shot, source, seed)

    async def each(self, source: str, seeds: Sequence[int]) -> list[list[Example]]:
        return [await self.samples(source, seed) for seed in seeds]

    async def widgets(self, seeds: Sequence[int]) -> list[list[Example]]:
        """What `each` makes of widgets, all on one sheet, in less time."""
        try:
            shots = await self.renderer.draw_sheet([make_widgets(seed) for seed in seeds])
        except RenderingError:
            return await self.each("widgets", seeds)
        return [self._asked(shot, "widgets", seed) for shot, seed in zip(shots, seeds, strict=True)]

    def _asked(self, shot: Shot, source: str, seed: int) -> list[Example]:
        size = {"size": [shot.width, shot.height]}
        about = {"source": source, "seed": seed, **size, "held_out": self._held_out, **shot.about}
        named = replace(shot, about=about)
        asked = (
            ask(named, f"ground/{source}", random.Random(f"questions/{source}/{seed}/{number}"))
            for number in range(self._asks)
        )
        samples = [sample for sample in asked if sample is not None]
        # What is written where is told once for all samples of a screen.
        samples[:1] = [replace(first, about={**first.about, "writing": asdict(shot.writing)}) for first in samples[:1]]
        return samples
