"""Themes of generated screens: colours, type, corners, density; some palettes are kept for evaluation."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from string import Template

from holotron.suites.kit.html import LABEL_PLACES, SCREEN_FONTS, LabelPlace

# A table: the first line has the names of the colours, as the theme's rules call them.
_COLUMNS, *_LINES = (line.split() for line in Path(__file__).with_name("palettes.txt").read_text().splitlines())
PALETTES = {line[0]: dict(zip(_COLUMNS, line, strict=True)) for line in _LINES}
HELD_OUT_PALETTES = ("violet", "ocean", "sand")
# Rules stand on a line each, and on the page without any.
THEME = Template(Path(__file__).with_name("theme.css").read_text().replace("\n", ""))
ALWAYS = "*{caret-color:transparent;animation:none!important;transition:none!important}html{overflow:hidden}"
LAYOUT = Path(__file__).with_name("layout.css").read_text().replace("\n", "")


@dataclass(frozen=True)
class ScreenTheme:
    """A theme. `bare` is the browser's own, with layout but without style."""

    name: str
    css: str
    bare: bool
    labels: LabelPlace


def draw_theme(chance: random.Random, *, held_out: bool) -> ScreenTheme:
    names = [name for name in PALETTES if (name in HELD_OUT_PALETTES) == held_out]
    name, size = chance.choice(names), 16 * chance.uniform(0.8, 1.3)
    font, labels = chance.choice(SCREEN_FONTS), chance.choice(LABEL_PLACES)
    base = f"{ALWAYS}{LAYOUT}html{{font-size:{size:.1f}px}}body,button,input,select,textarea{{font-family:'{font}'}}"
    if not held_out and chance.random() < 0.15:
        plain = chance.choice(["", "button,input,select,textarea{font-size:1rem}"])
        return ScreenTheme("bare", f"{base}{plain}body{{padding:.5rem}}", True, labels)
    palette = PALETTES[name]
    card, text, line, accent = (palette[colour] for colour in ("card", "text", "line", "accent"))
    radius = chance.choice([0, 0, 0.25, 0.4, 0.7, 1.5])
    field = chance.choice([card, palette["page"], "transparent"])
    edge = chance.choice([f"1px solid {line}", f"2px solid {line}", f"1px solid {palette['muted']}"])
    shadow = chance.choice(["none", "none", "0 1px 4px rgba(0,0,0,.25)", "0 4px 14px rgba(0,0,0,.2)"])
    pad = chance.choice([0.3, 0.45, 0.6])
    bar = chance.choice(
        [f"background:{accent};color:{palette['on_accent']}", f"background:{card};border-bottom:{edge}"]
    )
    second = chance.choice(
        [f"background:transparent;color:{accent};border:1px solid {accent}", f"background:{line};color:{text};border:0"]
    )
    caps = chance.choice(["", "", "", "text-transform:uppercase;letter-spacing:.04em;"])
    head = chance.choice([f"color:{text}", f"color:{accent}", f"color:{text};font-weight:400"])
    underline = chance.choice(["underline", "none"])
    rules = THEME.substitute(
        palette, radius=radius, field=field, field_radius=min(radius, 0.7), edge=edge, shadow=shadow, pad=pad,
        wide_pad=f"{pad * 2.2:.2f}", bar=bar, second=second, caps=caps, head=head, underline=underline,
    )  # fmt: skip
    return ScreenTheme(name, base + rules, False, labels)
