"""A screen on a canvas: the picture, and everything that is known to be on it."""

from __future__ import annotations

from dataclasses import replace

from holotron.env.placement import Placement
from holotron.suites.screens.labels import ScreenElement, Writing
from holotron.suites.screens.rendering import Shot

Box = tuple[float, float, float, float]


def placed(shot: Shot, placement: Placement) -> Shot:
    """The screen on a canvas, or the part of it that a canvas shows."""

    def across(x: float) -> float:
        return x * placement.zoom + placement.left

    def down(y: float) -> float:
        return y * placement.zoom + placement.top

    def box(found: Box) -> Box:
        return across(found[0]), down(found[1]), across(found[2]), down(found[3])

    def element(found: ScreenElement) -> ScreenElement:
        spots = tuple((round(across(x)), round(down(y))) for x, y in found.spots)
        return replace(found, box=box(found.box), spots=spots)

    words = tuple(
        (text, round(down(row)), tuple(round(across(x)) for x in columns)) for text, row, columns in shot.writing.words
    )
    writing = Writing(words, tuple(box(each) for each in shot.writing.unread))
    return Shot(placement.place_png(shot.png), *placement.size, tuple(map(element, shot.elements)), shot.about, writing)
