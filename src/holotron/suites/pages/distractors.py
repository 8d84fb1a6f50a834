"""What stands in the way on real pages and has nothing to do with the task."""

from __future__ import annotations

import random
from dataclasses import dataclass
from html import escape
from pathlib import Path

from holotron.suites.kit.words import BRANDS, SENTENCES
from holotron.suites.pages.data import read_data

SCRIPT = Path(__file__).with_name("distractors.js").read_text(encoding="utf-8")
STYLE = Path(__file__).with_name("distractors.css").read_text(encoding="utf-8")
SHARES = {"": 0.72, "banner": 0.11, "offer": 0.06, "form": 0.06, "hero": 0.05}


@dataclass(frozen=True)
class Distractor:
    """HTML before and after the content of a page, and a script that follows the page's own."""

    before: str = ""
    after: str = ""
    script: str = ""


def draw_distractor(chance: random.Random, instruction: str) -> Distractor:
    """One, or mostly none: a cookie banner, an offer over the page, a form that nobody asked for, or a large picture
    that leaves the first thing to do out of sight. None has a button with words of the instruction."""
    kind = chance.choices(list(SHARES), list(SHARES.values()))[0]
    if not kind:
        return Distractor()
    words = read_data("distractors")[kind]
    title, text = (chance.choice(words[name]) for name in ("titles", "texts"))
    labels = [chance.choice(group) for group in words["buttons"]]
    chance.shuffle(labels)
    if any(label.lower() in instruction.lower() for label in labels):
        return Distractor()
    buttons = "".join(
        f'<button type="button" class="{chance.choice(("", "main", "small"))}">{escape(label)}</button>'
        for label in labels
    )
    said = f"<b>{escape(title.format(brand=chance.choice(BRANDS)))}</b><p>{escape(text)}</p>"
    style = f"<style>{STYLE}</style>"
    match kind:
        case "banner":
            edge = chance.choice(
                ("bottom: 0", "bottom: 0", "top: 0", "bottom: 24px; left: 24px; right: auto; width: 380px")
            )
            inside = f'{said}<div class="row">{buttons}</div>'
            return Distractor(
                after=f'{style}<div class="banner" data-distractor style="{edge}">{inside}</div>', script=SCRIPT
            )
        case "offer":
            inside = f'<div class="offer">{said}<div class="row">{buttons}</div></div>'
            return Distractor(after=f'{style}<div class="cover" data-distractor>{inside}</div>', script=SCRIPT)
        case "form":
            field = (
                f'<div class="field"><input type="text" placeholder="{escape(chance.choice(words["hints"]))}"></div>'
            )
            inside = f'{said}<form novalidate><div class="row">{field}{buttons}</div></form>'
            return Distractor(after=f'{style}<div class="tile" data-distractor="form">{inside}</div>', script=SCRIPT)
    height, hue = chance.randrange(45, 130), chance.randrange(360)
    paint = f"linear-gradient({hue}deg, hsl({hue} 45% 75%), hsl({hue + 70} 40% 60%))"
    prose = "".join(f"<p>{sentence}</p>" for sentence in chance.sample(SENTENCES, 2))
    return Distractor(before=f'<div style="height:{height}vh;background:{paint};margin-bottom:1em"></div>{said}{prose}')
