"""Generated pages dressed in a library: its style sheet, and a script that gives each part the library's classes."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import NamedTuple
from zlib import crc32

from holotron.suites.libraries.manifest import HERE, Library, look_of, sheet_of
from holotron.suites.pages.style import PageStyle
from holotron.suites.pages.task import PageTask, draw_task
from holotron.suites.pages.varied import draw_variation
from holotron.suites.suite import TRAINING_SEEDS

DRESS, LAYOUT = (HERE.joinpath(name).read_text(encoding="utf-8") for name in ("dress.js", "layout.css"))
OWN_LETTERS = 0.5  # the share of pages that keep the letters of the library


class Dress(NamedTuple):
    """What a page in a library's look has in its head, and the script that stands behind its content."""

    sheet: str
    script: str


@cache
def dress_of(library: Library) -> Dress:
    look = look_of(library)
    colours = "".join(f"--{name}: {look[name]}; " for name in ("accent", "card") if name in look)
    rules = {"on": dict(library.on), **{name: look.get(name, {}) for name in ("parts", "around", "after")}}
    sheet = f"\n{LAYOUT}\n{sheet_of(library)}\n:root {{ {colours}}}\n{look.get('css', '')}\n"
    return Dress(sheet, f"({DRESS.strip()})({json.dumps(rules)});")


def letters(font: str) -> str:
    return f"body, button, input, select, textarea {{ font-family: '{font}' !important; }}"


def draw_library_task(library: Library, template: str, seed: int) -> tuple[PageTask, float]:
    """The task of a template's seed in a library's look, and the pixels of its picture for each of the page's."""
    name = f"{library.name}/{template}"
    seen, chance = draw_variation(name, seed)
    dress = dress_of(library)

    def restyle(style: PageStyle) -> PageStyle:
        size = chance.choice(("", "", "", "html { font-size: 112%; }", "html { font-size: 90%; }"))
        variations = (size if chance.random() < 0.5 else "") + (
            "" if chance.random() < OWN_LETTERS else letters(seen.font)
        )
        kept = "; ".join(each for each in style.variables.split("; ") if each.startswith(("--room", "--width")))
        dressed = replace(style, sheet=dress.sheet, dressing=dress.script)
        return replace(dressed, viewport=seen.viewport, variables=kept, variations=variations)

    # The same seed shall not say the same in every library.
    own_seed = seed - seed % len(TRAINING_SEEDS) + (seed + crc32(library.name.encode())) % len(TRAINING_SEEDS)
    return replace(draw_task(template, own_seed, restyle), template=name, seed=seed), seen.ratio
