"""Generated pages in drawn variations: pictures of up to 1920×1080, device pixel ratios, letters and colours."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import NamedTuple

from PIL import Image

from holotron.env.environment import Observation
from holotron.suites.kit.variation import (
    FONTS,
    HELD_OUT_FONTS,
    HUE_BAND,
    OFFSET_BAND,
    SIDE_BAND,
    ZOOM_BAND,
    draw_number,
)
from holotron.suites.pages.environment import PageEnvironment
from holotron.suites.pages.style import PageStyle, is_dark
from holotron.suites.pages.suite import PagesSuite
from holotron.suites.pages.task import PageTask, draw_task
from holotron.suites.suite import HELD_OUT_SEEDS

WIDTHS, HEIGHTS, LARGEST = range(800, 1601), range(600, 1001), (1920, 1080)
RATIOS = range(80, 201)  # hundredths of the device pixel ratio
MARGINS = range(65)


class PageVariation(NamedTuple):
    """How else a page is shown: in what view, at how many pixels for each of its own, in what colour and letters."""

    viewport: tuple[int, int]
    ratio: float
    hue: int
    margins: tuple[int, ...]
    font: str


def draw_variation(name: str, seed: int) -> tuple[PageVariation, random.Random]:
    """The variation of a task's seed, and what else may be drawn with."""
    chance, held_out = random.Random(f"variation/{name}/{seed}"), seed in HELD_OUT_SEEDS
    width = draw_number(chance, WIDTHS, SIDE_BAND, held_out)
    height = draw_number(chance, HEIGHTS, SIDE_BAND, held_out)
    most = min(LARGEST[0] / width, LARGEST[1] / height)
    ratio = draw_number(chance, [each for each in RATIOS if each <= 100 * most], ZOOM_BAND, held_out) / 100
    hue = draw_number(chance, range(360), HUE_BAND, held_out)
    margins = tuple(draw_number(chance, MARGINS, OFFSET_BAND, held_out) for _ in range(4))
    font = chance.choice(HELD_OUT_FONTS if held_out else FONTS)
    return PageVariation((width, height), ratio, hue, margins, font), chance


def draw_varied_task(name: str, seed: int) -> tuple[PageTask, float]:
    """The task of a seed in its variation, and the pixels of its picture for each of the page's."""
    seen, _ = draw_variation(name, seed)

    def restyle(style: PageStyle) -> PageStyle:
        accent = f"hsl({seen.hue} 70% {68 if is_dark(style) else 33}%)"
        around = " ".join(f"{margin}px" for margin in seen.margins)
        return replace(
            style,
            viewport=seen.viewport,
            variables=f"{style.variables}; --font: '{seen.font}'; --accent: {accent}",
            variations=f"{style.variations} body {{ margin: {around}; }}",
        )

    return draw_task(name, seed, restyle), seen.ratio


class VariedPage(PageEnvironment):
    """One page, shown as the seed of its task says."""

    def draw(self, name: str, seed: int) -> tuple[PageTask, float]:
        return draw_varied_task(name, seed)

    async def observe(self) -> Observation:
        picture = await self.capture(*self.size, self.ratio)
        with Image.open(io.BytesIO(picture)) as image:  # the browser rounds halves up, or down where floats say so
            return Observation(picture, *image.size)


class VariedPagesSuite(PagesSuite):
    """The templates, protocols and teachers of generated pages; seeds for evaluation look as none for training do."""

    name = "pages-varied"
    page = VariedPage
