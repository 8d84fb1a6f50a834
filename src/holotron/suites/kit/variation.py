"""How else the same screen may look: canvas, place, zoom, colours and letters, drawn from a seed.

Every range of numbers is cut into bands, and every fourth band is kept for evaluation: what is drawn for training and
what is held out never meet. The same holds for the fonts.
"""

from __future__ import annotations

import colorsys
import random
from collections.abc import Sequence
from dataclasses import dataclass

from holotron.env.placement import Colour, Placement, Size

KEPT = 4  # of so many bands the last is held out
SIDE_BAND, OFFSET_BAND, ZOOM_BAND, HUE_BAND = 16, 8, 5, 15  # pixels, pixels, hundredths, degrees
FONTS = ("Liberation Sans", "Liberation Serif", "DejaVu Sans Condensed", "Liberation Mono")
HELD_OUT_FONTS = ("Liberation Sans Narrow", "DejaVu Serif Condensed")
ZOOMS = range(80, 201)  # hundredths
LONGEST_SIDE = 480  # of the canvas of a small screen


def is_held_out(value: int, band: int) -> bool:
    return value // band % KEPT == KEPT - 1


def draw_number(chance: random.Random, values: Sequence[int], band: int, held_out: bool) -> int:
    """One of the values in bands of this kind; where there is none, the first value."""
    fitting = [value for value in values if is_held_out(value, band) == held_out]
    return chance.choice(fitting) if fitting else values[0]


def draw_colour(chance: random.Random, held_out: bool, light: tuple[float, float], strong: float = 0.8) -> Colour:
    """A colour of some hue, as light as that and at most so strong."""
    hue = draw_number(chance, range(360), HUE_BAND, held_out)
    parts = colorsys.hls_to_rgb(hue / 360, chance.uniform(*light), chance.uniform(0.1, strong))
    red, green, blue = (round(255 * part) for part in parts)
    return red, green, blue


def draw_padding(chance: random.Random, held_out: bool) -> Colour:
    """What lies around a screen: white in nearly half of all cases, else grey or coloured, light or dark."""
    kind = chance.random()
    if kind < 0.45:
        return 255, 255, 255
    if kind < 0.6:
        grey = chance.randrange(256)
        return grey, grey, grey
    return draw_colour(chance, held_out, (0.15, 0.95))


def draw_placement(
    chance: random.Random, picture: Size, held_out: bool, *, longest: int = LONGEST_SIDE, zooms: range = ZOOMS
) -> Placement:
    """A canvas around a small screen. Each side stays as long as the screen in a quarter of all cases."""
    zoom = draw_number(chance, zooms, ZOOM_BAND, held_out) / 100
    shown = Placement(picture, zoom=zoom).scaled(picture)
    sides, corners = [], []
    for side in shown:
        longer = range(side, max(side, longest) + 1)
        canvas = side if chance.random() < 0.25 else draw_number(chance, longer, SIDE_BAND, held_out)
        sides.append(canvas)
        corners.append(draw_number(chance, range(canvas - side + 1), OFFSET_BAND, held_out))
    return Placement((sides[0], sides[1]), corners[0], corners[1], zoom, draw_padding(chance, held_out))


@dataclass(frozen=True)
class Look:
    """Letters and colours of a page: `ground` behind everything, `bar` behind what stands out."""

    font: str
    ground: Colour
    bar: Colour


def draw_look(chance: random.Random, held_out: bool) -> Look:
    """Always light, so that dark letters can be read."""
    font = chance.choice(HELD_OUT_FONTS if held_out else FONTS)
    ground = (255, 255, 255) if chance.random() < 0.3 else draw_colour(chance, held_out, (0.9, 0.98), 0.6)
    return Look(font, ground, draw_colour(chance, held_out, (0.75, 0.9), 0.9))


def css_colour(colour: Colour) -> str:
    return f"rgb({colour[0]} {colour[1]} {colour[2]})"
