"""How a page looks: colours, letters, shapes and what stands around its content, drawn once for each page."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from pathlib import Path

from holotron.suites.kit.html import FONTS, LABEL_PLACES, LabelPlace
from holotron.suites.kit.words import BRANDS, LINKS, SENTENCES

VIEWPORTS = ((1024, 768), (1152, 768), (1280, 720), (1280, 800))
DARK_ON = "#10131a"  # what stands on the accent of dark pages
LINK = re.compile(r'<a href="#">([^<]*)</a>')
FIELDS = ".styled input:not([type=checkbox]):not([type=radio]), .styled textarea"

CSS = "\n" + Path(__file__).with_name("style.css").read_text()


@dataclass(frozen=True)
class PageStyle:
    """The style of one page. dressing: a script that goes over its content."""

    variables: str
    classes: str
    labels: LabelPlace
    header: str
    aside: str
    footer: str
    viewport: tuple[int, int]
    variations: str = ""
    sheet: str = CSS
    dressing: str = ""

    def without(self, text: str) -> PageStyle:
        """Without the links around the content that a reader of this text might take for what is meant."""
        said = text.lower()

        def keep(link: re.Match[str]) -> str:
            return "" if link[1].lower() in said else link[0]

        header, aside, footer = (LINK.sub(keep, part) for part in (self.header, self.aside, self.footer))
        return replace(self, header=header, aside=aside, footer=footer)

    def varied(self, chance: random.Random) -> PageStyle:
        """With some style variations, such as each site has of its own."""
        return replace(self, variations=_variations(chance) if chance.random() < 0.7 else "")

    def document(self, title: str, body: str, script: str) -> str:
        """The whole page around its content."""
        side = "columns right" if "right" in self.classes else "columns"
        dressing = f"<script>{self.dressing}</script>" if self.dressing else ""
        main = f'<main><div id="notice" class="notice" hidden></div>{body}</main>'
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>:root {{ {self.variables} }}{self.sheet}{self.variations}</style></head>"
            f'<body class="{self.classes}">{self.header}<div class="{side}">{self.aside}{main}</div>{self.footer}'
            f"{dressing}<script>(() => {{\n{script}\n}})();</script></body></html>"
        )


def draw_style(chance: random.Random, *, wide: bool = False) -> PageStyle:
    """`wide`: the content needs the whole width, as tables and grids do."""
    dark = chance.random() < 0.25
    hue = chance.randrange(360)
    radius = chance.choice((0, 0, 3, 6, 10, 16))
    styled = chance.random() < 0.8
    card = not wide and chance.random() < 0.55
    size = chance.choice((13, 14, 14, 15, 16, 16, 17, 18, 20))
    variables = {
        **(_dark(chance, hue) if dark and styled else _light(chance, hue)),
        "--radius": f"{radius}px",
        "--size": f"{size}px",
        "--font": f"'{chance.choice(FONTS)}'",
        "--width": f"{chance.choice((420, 480, 560, 640, 760))}px",
        "--room": f"{chance.choice((14, 22, 30, 40))}px {chance.choice((20, 30, 44))}px",
        "--cell": f"{chance.choice((0.25, 0.4, 0.6))}em",
    }
    classes = ["styled" if styled else "plain"]
    classes += ["card"] if card else []
    classes += ["shadow"] if card and chance.random() < 0.5 else []
    classes += [chance.choice(("", "", "underline", "outlined"))] if styled else []
    classes += ["striped"] if chance.random() < 0.4 else []
    labels: LabelPlace = chance.choice(LABEL_PLACES) if not card or size < 17 else "above"
    classes += ["left"] if labels == "left" else []
    has_aside = not card and chance.random() < 0.35
    classes += ["right"] if has_aside and chance.random() < 0.4 else []
    return PageStyle(
        variables="; ".join(f"{name}: {value}" for name, value in variables.items()),
        classes=" ".join(part for part in classes if part),
        labels=labels,
        header=_header(chance) if chance.random() < 0.7 else "",
        aside=_aside(chance) if has_aside else "",
        footer=_footer(chance) if chance.random() < 0.5 else "",
        viewport=chance.choice(VIEWPORTS),
    )


def _variations(chance: random.Random) -> str:
    """Some of many rules on top of the common ones."""
    pad, wide = chance.uniform(0.15, 0.9), chance.uniform(0.5, 2.0)
    rules = {
        "button { text-transform: uppercase; letter-spacing: .05em; }": 0.12,
        "h1, h2, th { text-transform: uppercase; letter-spacing: .08em; }": 0.1,
        "label, dt, td:first-child { font-weight: bold; }": 0.2,
        "h1, h2 { font-weight: normal; }": 0.15,
        "h1 { text-align: center; }": 0.12,
        "h1 { font-size: 2.4em; }": 0.12,
        f".styled button {{ padding: {pad:.2f}em {wide:.2f}em; }}": 0.35,
        ".styled button.main { border-radius: 99px; box-shadow: 0 2px 6px rgba(0, 0, 0, .3); }": 0.2,
        ".styled form > button.main { width: 100%; max-width: 560px; }": 0.15,
        ".styled button:not(.main) { background: none; border-color: transparent; color: var(--accent); }": 0.12,
        f"{FIELDS} {{ padding: {pad:.2f}em .6em; }}": 0.3,
        f"{FIELDS} {{ background: var(--quiet); border-color: transparent; }}": 0.15,
        f"{FIELDS} {{ width: {chance.randrange(9, 26)}em; max-width: 100%; }}": 0.25,
        "body { background-image: linear-gradient(135deg, var(--quiet), var(--ground) 60%); }": 0.15,
        f"body {{ padding: {chance.randrange(10, 60)}px; }}": 0.15,
        f"body {{ line-height: {chance.choice((1.2, 1.3, 1.7, 1.9))}; }}": 0.25,
        "body { letter-spacing: .03em; }": 0.1,
        "main { max-width: 46em; margin-inline: auto; }": 0.12,
        "a { text-decoration: none; font-weight: bold; }": 0.2,
        "header { flex-direction: row-reverse; }": 0.1,
        "footer { background: var(--quiet); border: 0; }": 0.2,
        "input[type=checkbox]:not(.switch), input[type=radio] { width: 1.6em; height: 1.6em; }": 0.15,
        "input[type=checkbox]:not(.switch), input[type=radio] { width: 13px; height: 13px; }": 0.2,
        ".item, .tile, .fold { border-style: dashed; }": 0.1,
        ".item { border: 1px solid var(--line); border-radius: var(--radius); margin: .4em 0; }": 0.15,
        _picture(chance): 0.2,
    }
    return " ".join(rule for rule, share in rules.items() if chance.random() < share)


def _picture(chance: random.Random) -> str:
    """Something painted above the content: sky, hills, suns."""
    spots = ", ".join(
        f"radial-gradient(circle at {chance.randrange(100)}% {chance.randrange(100)}%, "
        f"hsl({chance.randrange(360)} 60% {chance.randrange(30, 80)}%) {chance.randrange(4, 30)}%, transparent 0)"
        for _ in range(chance.randrange(1, 6))
    )
    sky, ground = (f"hsl({chance.randrange(360)} 45% {light}%)" for light in (75, 40))
    below = f"linear-gradient({chance.randrange(150, 210)}deg, {sky} 60%, {ground} 0)"
    shape = f'content: ""; display: block; height: {chance.randrange(50, 190)}px; margin-bottom: 1em;'
    return f"main::before {{ {shape} background: {spots}, {below}; }}"


def _light(chance: random.Random, hue: int) -> dict[str, str]:
    ground = chance.choice(("#ffffff", "#f4f5f7", "#faf7f2", f"hsl({hue} 30% 95%)", f"hsl({hue} 25% 90%)"))
    card = "#ffffff" if ground != "#ffffff" else chance.choice(("#ffffff", "#fafafa"))
    accent = f"hsl({hue} {chance.randrange(45, 85)}% {chance.randrange(26, 40)}%)"
    return {
        "--ground": ground, "--card": card, "--ink": chance.choice(("#111", "#222", "#1b2733")), "--soft": "#667",
        "--line": chance.choice(("#ccc", "#b9c0c8", "#888")), "--accent": accent, "--on": "#fff", "--quiet": "#eceef0",
    }  # fmt: skip


def is_dark(style: PageStyle) -> bool:
    return f"--on: {DARK_ON}" in style.variables


def _dark(chance: random.Random, hue: int) -> dict[str, str]:
    return {
        "--ground": chance.choice(("#14171c", "#1c1c1c", "#0d1117")), "--card": "#23272e", "--ink": "#e6e6e6",
        "--soft": "#9aa4b0", "--line": "#4a515b", "--accent": f"hsl({hue} 70% 68%)", "--on": DARK_ON,
        "--quiet": "#2f353e",
    }  # fmt: skip


def _links(chance: random.Random, count: int) -> str:
    return "".join(f'<a href="#">{link}</a>' for link in chance.sample(LINKS, count))


def _header(chance: random.Random) -> str:
    bold = ' class="bold"' if chance.random() < 0.5 else ""
    nav = f"<nav>{_links(chance, chance.randrange(2, 6))}</nav>" if chance.random() < 0.75 else ""
    return f"<header{bold}><b>{chance.choice(BRANDS)}</b>{nav}</header>"


def _aside(chance: random.Random) -> str:
    text = f"<p>{chance.choice(SENTENCES)}</p>" if chance.random() < 0.5 else ""
    return f"<aside>{_links(chance, chance.randrange(3, 7))}{text}</aside>"


def _footer(chance: random.Random) -> str:
    return f"<footer><span>© {chance.choice(BRANDS)}</span>{_links(chance, chance.randrange(0, 4))}</footer>"
