"""Themes of generated screens: colours, type, corners, density; some palettes are kept for evaluation."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from string import Template

from holotron.suites.kit.themes import LABEL_PLACES, SCREEN_FONTS, LabelPlace

# Name: page, card, text, muted text, line, accent, text on accent.
PALETTES = {
    "paper": ("#ffffff", "#f6f7f9", "#1c2430", "#5d6876", "#cfd6de", "#1f6feb", "#ffffff"),
    "grey": ("#f0f2f5", "#ffffff", "#222222", "#666666", "#d4d7dc", "#0a7d5a", "#ffffff"),
    "cream": ("#fbf6ea", "#fffdf7", "#3a2f1f", "#77694f", "#ddcfae", "#a8501e", "#ffffff"),
    "night": ("#12161c", "#1c222b", "#e8edf3", "#9aa7b5", "#39434f", "#4ea1ff", "#08121d"),
    "coal": ("#222222", "#2e2e2e", "#f2f2f2", "#b0b0b0", "#4a4a4a", "#ffb02e", "#241a00"),
    "rose": ("#fff5f7", "#ffffff", "#33161e", "#8a5a68", "#f1c9d4", "#c2185b", "#ffffff"),
    "mint": ("#effaf5", "#ffffff", "#12352a", "#4f7868", "#c0e2d4", "#00796b", "#ffffff"),
    "sky": ("#eaf4fd", "#ffffff", "#0f2a43", "#52708c", "#bcd8ef", "#0b61a4", "#ffffff"),
    "violet": ("#f6f3ff", "#ffffff", "#261a4d", "#6c6191", "#d5ccf2", "#6236d9", "#ffffff"),
    "contrast": ("#ffffff", "#ffffff", "#000000", "#333333", "#9a9a9a", "#000000", "#ffffff"),
    "terminal": ("#031007", "#06190c", "#7dfc9f", "#4bb36b", "#1e5a33", "#7dfc9f", "#031007"),
    "sand": ("#e9e1d2", "#f7f2e7", "#2e2a22", "#6d6555", "#c9bda5", "#6b4f1d", "#ffffff"),
    "slate": ("#dfe5ec", "#f4f7fa", "#1d2a38", "#56677a", "#b7c4d2", "#33475b", "#ffffff"),
    "lime": ("#fdfff2", "#ffffff", "#25300b", "#66733f", "#d6e3a3", "#4d7c0f", "#ffffff"),
    "ocean": ("#06283d", "#0c3a55", "#e6f6ff", "#9cc7df", "#2a5f80", "#47d7ac", "#04231a"),
    "brick": ("#fbf1ee", "#ffffff", "#3b1710", "#8a5d52", "#ebc7bd", "#b3391f", "#ffffff"),
}
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
    held_out: bool


def draw_theme(chance: random.Random, *, held_out: bool) -> ScreenTheme:
    names = [name for name in PALETTES if (name in HELD_OUT_PALETTES) == held_out]
    name, size = chance.choice(names), 16 * chance.uniform(0.8, 1.3)
    font, labels = chance.choice(SCREEN_FONTS), chance.choice(LABEL_PLACES)
    base = f"{ALWAYS}{LAYOUT}html{{font-size:{size:.1f}px}}body,button,input,select,textarea{{font-family:'{font}'}}"
    if not held_out and chance.random() < 0.15:
        plain = chance.choice(["", "button,input,select,textarea{font-size:1rem}"])
        return ScreenTheme("bare", f"{base}{plain}body{{padding:.5rem}}", True, labels, False)
    page, card, text, muted, line, accent, on_accent = PALETTES[name]
    radius = chance.choice([0, 0, 0.25, 0.4, 0.7, 1.5])
    field = chance.choice([card, page, "transparent"])
    edge = chance.choice([f"1px solid {line}", f"2px solid {line}", f"1px solid {muted}"])
    shadow = chance.choice(["none", "none", "0 1px 4px rgba(0,0,0,.25)", "0 4px 14px rgba(0,0,0,.2)"])
    pad = chance.choice([0.3, 0.45, 0.6])
    bar = chance.choice([f"background:{accent};color:{on_accent}", f"background:{card};border-bottom:{edge}"])
    second = chance.choice(
        [f"background:transparent;color:{accent};border:1px solid {accent}", f"background:{line};color:{text};border:0"]
    )
    caps = chance.choice(["", "", "", "text-transform:uppercase;letter-spacing:.04em;"])
    head = chance.choice([f"color:{text}", f"color:{accent}", f"color:{text};font-weight:400"])
    underline = chance.choice(["underline", "none"])
    rules = THEME.substitute(
        page=page, card=card, text=text, muted=muted, line=line, accent=accent, on_accent=on_accent, radius=radius,
        field=field, field_radius=min(radius, 0.7), edge=edge, shadow=shadow, pad=pad, wide_pad=f"{pad * 2.2:.2f}",
        bar=bar, second=second, caps=caps, head=head, underline=underline,
    )  # fmt: skip
    return ScreenTheme(name, base + rules, False, labels, held_out)
