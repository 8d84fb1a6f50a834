"""Generated pages of full size: a template in a theme, at a size."""

from __future__ import annotations

import random

from holotron.suites.kit.html import document
from holotron.suites.kit.variation import SIDE_BAND, draw_number
from holotron.suites.screens.builder import ScreenBuilder
from holotron.suites.screens.rendering import Document
from holotron.suites.screens.templates import HELD_OUT, TEMPLATES
from holotron.suites.screens.themes import draw_theme

WIDTHS, HEIGHTS = range(800, 1921), range(600, 1081)
SIZES = ((800, 600), (1024, 768), (1280, 720), (1280, 800), (960, 640))


def make_page(seed: int, *, held_out: bool = False, varied: bool = False) -> Document:
    """The page of a seed. Held-out pages have a template or a theme, or both, that no other page has.

    varied: in a view of any size, not of a few.
    """
    chance = random.Random(f"pages/{seed}/{held_out}")
    new_template, new_theme = (
        chance.choice([(True, False), (False, True), (True, True)]) if held_out else (False, False)
    )
    templates = HELD_OUT if new_template else TEMPLATES
    name = chance.choice(sorted(templates))
    theme = draw_theme(chance, held_out=new_theme)
    body = templates[name](ScreenBuilder(chance, theme))
    width, height = chance.choice(SIZES)
    if varied:
        width, height = (draw_number(chance, sides, SIDE_BAND, held_out) for sides in (WIDTHS, HEIGHTS))
    return Document(document(theme.css, body), width, height, {"template": name, "theme": theme.name})
