"""Screens of published libraries: generated pages in their looks, and the pages and pieces that they ship."""

from __future__ import annotations

import random
from dataclasses import replace

from holotron.suites.kit.html import document
from holotron.suites.kit.variation import FONTS, HELD_OUT_FONTS, SIDE_BAND, draw_number
from holotron.suites.libraries.dressing import draw_library_task, dress_of, letters
from holotron.suites.libraries.fetch import shipped
from holotron.suites.libraries.manifest import Library, libraries, sheet_of
from holotron.suites.libraries.suite import TEMPLATES as TASKS
from holotron.suites.screens.builder import ScreenBuilder
from holotron.suites.screens.pages import HEIGHTS, WIDTHS
from holotron.suites.screens.rendering import Document
from holotron.suites.screens.templates import TEMPLATES
from holotron.suites.screens.themes import ALWAYS, LAYOUT, draw_theme
from holotron.suites.suite import HELD_OUT_SEEDS

# How often a screen is a whole page in a library's look, one with a task on it, or what a library ships.
KINDS = {"page": 0.45, "task": 0.25, "shipped": 0.3}
PIECES = (2, 6)  # shipped pieces of pages that stand together


def make_library_page(seed: int, trial: int = 0, *, held_out: bool = False) -> Document:
    """The page of a seed. Held-out pages are of held-out libraries."""
    chance = random.Random(f"libraries/{seed}/{held_out}/{trial}")
    kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
    fitting = [
        each for each in libraries(held_out) if (each.pages or each.fragments if kind == "shipped" else each.sheet)
    ]
    library = chance.choice(fitting)
    width, height = (draw_number(chance, sides, SIDE_BAND, held_out) for sides in (WIDTHS, HEIGHTS))
    about = {"library": library.name, "kind": kind}
    if kind == "task":
        template = chance.choice(TASKS)
        drawn_seed = seed % len(HELD_OUT_SEEDS) + (HELD_OUT_SEEDS[0] if held_out else 0)
        task, _ = draw_library_task(library, template, drawn_seed)
        return Document(task.html, *task.viewport, {**about, "template": template})
    own = letters(chance.choice(HELD_OUT_FONTS if held_out else FONTS)) if chance.random() < 0.5 else ""
    if kind == "shipped":
        return replace(_shipped(library, chance, own), width=width, height=height, about=about)
    name = chance.choice(sorted(TEMPLATES))
    theme = replace(draw_theme(chance, held_out=False), bare=False)
    body, dress = TEMPLATES[name](ScreenBuilder(chance, theme)), dress_of(library)
    size = f"html {{ font-size: {chance.choice((90, 100, 100, 100, 115, 130))}%; }}"
    html = document(f"{LAYOUT}{dress.sheet}{ALWAYS}{size}{own}", f"{body}<script>{dress.script}</script>")
    return Document(html, width, height, {**about, "template": name})


def _shipped(library: Library, chance: random.Random, own: str) -> Document:
    """A page that came with the library, or several pieces of pages in its style."""
    if library.fragments:
        found = shipped(library, library.fragments)
        pieces = chance.sample(found, min(len(found), chance.randint(*PIECES)))
        inside = "".join(f'<div style="margin:1.5em">{path.read_text(encoding="utf-8")}</div>' for path in pieces)
        return Document(document(f"{sheet_of(library, prefixed=False)}{ALWAYS}{own}", inside), 0, 0)
    path = chance.choice(shipped(library, library.pages))
    return Document("", 0, 0, url=path.as_uri(), scroll=0.0 if chance.random() < 0.4 else chance.random())
