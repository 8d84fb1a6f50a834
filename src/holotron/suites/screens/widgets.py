"""Small pages of 160 by 210 pixels: an instruction bar and some controls beneath it, plain or styled."""

from __future__ import annotations

import random
from collections.abc import Callable
from html import escape

from holotron.suites.kit.words import FIELDS, MENU, OPTIONS, SCREEN_COLOURS, SCREEN_COUNTRIES, TABLE_HEADS
from holotron.suites.screens.icons import NAMES, icon
from holotron.suites.screens.rendering import Document
from holotron.suites.screens.themes import ALWAYS
from holotron.suites.screens.words import Words

WIDTH, HEIGHT, BAR = 160, 210, 50
FONTS = ("Liberation Sans", "Liberation Sans", "Liberation Sans", "DejaVu Sans", "Liberation Serif", "Liberation Mono")
BARS = ("#ff0", "#ff0", "#ff0", "#ffe", "#fd6", "#cf9", "#9df")
# Styles beyond the browser's own: control background, border, text, corner, page.
STYLES = (
    ("#f6f6f6", "#c5c5c5", "#454545", 3, "#ffffff"),
    ("#007fff", "#003eff", "#ffffff", 3, "#ffffff"),
    ("#eeeeee", "#999999", "#222222", 0, "#fafafa"),
    ("#2b3a4a", "#55697d", "#e8eef4", 4, "#16202a"),
    ("#fde8c8", "#c98a2b", "#5a3a08", 8, "#fffaf0"),
    ("#e3f5e6", "#3c9a50", "#114a1e", 2, "#ffffff"),
)
WORDING = (
    'Click on the "{0}" button.', "Select {0} and click Submit.", 'Enter "{0}" into the text field and press {1}.',
    "Choose {0} from the list.", "Find the {0} and click on it.", 'Check "{0}", then press {1}.', "Drag {0} to {1}.",
    "Click the link \"{0}\".", "Switch between the tabs to find and click on {0}.", "{0} {1}", "Expand {0}.",
)  # fmt: skip

Widget = Callable[[Words], str]


def _button(words: Words) -> str:
    text = escape(words.button())
    about = f' style="width:{words.number(30, 140)}px"' if words.maybe(0.2) else ""
    if words.maybe(0.15):
        return f'<input type="{words.pick("button", "submit")}" value="{text}">'
    return f"<button{about}{' disabled' * words.maybe(0.05)}>{text}</button>"


def _buttons(words: Words) -> str:
    return words.pick(" ", "", "<br>").join(_button(words) for _ in range(words.number(1, 4)))


def _links(words: Words) -> str:
    def one() -> str:
        text = escape(words.label())
        blue = '<span role="link" style="color:#00f;text-decoration:underline;cursor:pointer">{}</span>'
        return blue.format(text) if words.maybe(0.4) else f'<a href="#">{text}</a>'

    return words.pick(" ", "<br>", " | ").join(one() for _ in range(words.number(1, 4)))


def _prose(words: Words) -> str:
    parts = escape(words.paragraph(words.pick(1, 2))).split(" ")
    for place in words.chance.sample(range(len(parts)), min(len(parts), words.pick(0, 1, 2))):
        parts[place] = words.pick('<a href="#">{}</a>', "<b>{}</b>", "<i>{}</i>").format(parts[place])
    return f"<p>{' '.join(parts)}</p>"


def _ticks(words: Words) -> str:
    kind = words.pick("checkbox", "checkbox", "radio")
    texts = [escape(words.label()) for _ in range(words.number(2, 6))]
    on = words.chance.randrange(len(texts) + 1)
    lines = []
    for index, text in enumerate(texts):
        checked = index == on if kind == "radio" else words.maybe(0.4)
        box = f'<input type="{kind}" name="g"{" checked" * checked}>'
        lines.append(f"<label>{box}{text}</label>" if words.maybe(0.8) else f"{box} {text}")
    return words.pick("<br>", "<br>", "<br>", " ").join(lines)


def _field(words: Words) -> str:
    name = escape(words.pick(*FIELDS))
    value = escape(words.value(), quote=True) if words.maybe(0.4) else ""
    width = words.number(50, 130)
    kind = "password" if name == "Password" else "text"
    draw = words.chance.random()
    if draw < 0.12:
        return f'<textarea style="width:{width}px;height:{words.pick(25, 35)}px">{value[:16]}</textarea>'
    if draw < 0.4:
        return f'<input type="{kind}" style="width:{width}px" value="{value}">'
    if draw < 0.55:
        return f'<input type="{kind}" style="width:{width}px" placeholder="{name}" value="{value}">'
    bold = ' style="font-weight:bold"' if words.maybe(0.5) else ""
    gap = words.pick("<br>", " ", "")
    return (
        f'<label{bold}>{name}{words.pick("", ":")}</label>{gap}<input type="{kind}" style="width:{min(width, 90)}'
        f'px" value="{value}">'
    )


def _fields(words: Words) -> str:
    return "".join(f"<p>{_field(words)}</p>" for _ in range(words.number(1, 3)))


def _select(words: Words) -> str:
    texts = words.some(words.pick(SCREEN_COUNTRIES, OPTIONS, MENU), words.number(2, 6))
    size = f' size="{len(texts)}"' if words.maybe(0.25) else ""
    chosen = words.chance.randrange(len(texts))
    options = "".join(f"<option{' selected' * (i == chosen)}>{text}</option>" for i, text in enumerate(texts))
    name = f"{words.pick(*FIELDS)}: " if words.maybe(0.4) else ""
    return f'{name}<select{size} style="max-width:150px">{options}</select>'


def _tabs(words: Words) -> str:
    texts = [f"Tab #{i + 1}" for i in range(3)] if words.maybe(0.3) else words.some(MENU, words.pick(2, 3))
    chosen = words.chance.randrange(len(texts))
    tabs = "".join(
        f'<span role="tab" class="ctl" aria-selected="{str(i == chosen).lower()}" style="display:inline-block;'
        f"padding:3px 5px;"
        f'{"background:#fff;color:#000;border-bottom-color:#fff" if i == chosen else ""}">{text}</span>'
        for i, text in enumerate(texts)
    )
    return (
        f'<div role="tablist">{tabs}</div><div style="border:1px solid #bbb;padding:3px">'
        f"{escape(words.sentence(4, 8))}</div>"
    )


def _table(words: Words) -> str:
    heads, rows = words.some(TABLE_HEADS, words.pick(2, 3)), words.number(2, 5)
    makers = [words.pick(words.first, words.figure, words.word, words.string) for _ in heads]
    top = "".join(f"<th>{head}</th>" for head in heads) if words.maybe(0.7) else ""
    body = "".join("<tr>" + "".join(f"<td>{escape(make())}</td>" for make in makers) + "</tr>" for _ in range(rows))
    return (
        f'<table border="{words.pick(0, 1, 1)}" style="font-size:inherit;border-collapse:collapse"><tr>{top}</tr>'
        f"{body}</table>"
    )


def _list(words: Words) -> str:
    tag = words.pick("ul", "ol")
    items = "".join(f"<li>{escape(words.label())}</li>" for _ in range(words.number(2, 6)))
    return f'<{tag} style="margin:2px;padding-left:20px">{items}</{tag}>'


def _icons(words: Words) -> str:
    size, button = words.pick(12, 14, 16, 20, 24), words.maybe(0.4)
    parts = []
    for name in words.chance.sample(NAMES, words.number(2, 5)):
        drawn = icon(name, named=not button, size=f"{size}px", filled=words.maybe(0.1))
        parts.append(f'<button aria-label="{name}">{drawn}</button>' if button else drawn)
    return f'<div style="color:{words.pick(*SCREEN_COLOURS[:8]) if words.maybe(0.3) else "inherit"}">{" ".join(parts)}</div>'


def _shapes(words: Words) -> str:
    """Coloured shapes, letters and digits, on a grid so that none covers another."""
    cell, columns, rows = words.pick((26, 6, 4), (38, 4, 3), (50, 3, 2))
    places = words.chance.sample(range(columns * rows), words.number(2, min(9, columns * rows)))
    drawn = []
    for place in places:
        size = words.chance.uniform(0.35, 0.8) * cell
        x, y = place % columns * cell + (cell - size) / 2, place // columns * cell + (cell - size) / 2
        half, paint = size / 2, words.pick(*[color for color in SCREEN_COLOURS if color != "white"])
        drawn.append(
            words.pick(
                f'<rect x="{x:.0f}" y="{y:.0f}" width="{size:.0f}" height="{size:.0f}" fill="{paint}"/>',
                f'<rect x="{x:.0f}" y="{y + size / 5:.0f}" width="{size:.0f}" height="{size * 0.55:.0f}" '
                f'fill="{paint}"/>',
                f'<circle cx="{x + half:.0f}" cy="{y + half:.0f}" r="{half:.0f}" fill="{paint}"/>',
                f'<polygon points="{x + half:.0f},{y:.0f} {x + size:.0f},{y + size:.0f} {x:.0f},{y + size:.0f}'
                f'" fill="{paint}"/>',
                f'<text x="{x:.0f}" y="{y + size:.0f}" font-size="{max(size, 10):.0f}" fill="{paint}">'
                f"{words.string(1, 1)}</text>",
            )
        )
    return (
        f'<svg width="{cell * columns}" height="{cell * rows}" style="display:block;background:#fff">{"".join(drawn)}'
        f"</svg>"
    )


def _slider(words: Words) -> str:
    name = words.pick("", "Volume ", "Level ", words.noun().capitalize() + " ")
    return (
        f'<p>{name}<input type="range" style="width:{words.number(60, 110)}px" '
        f'value="{words.chance.randrange(101)}"></p>'
    )


def _menu(words: Words) -> str:
    items = dict.fromkeys(words.button() for _ in range(words.number(2, 6)))
    parts = "".join(f'<div role="menuitem" style="padding:2px 6px">{escape(text)}</div>' for text in items)
    return f'<div class="ctl" style="width:{words.number(80, 120)}px">{parts}</div>'


def _dialog(words: Words) -> str:
    left, top = words.number(2, 24), words.number(55, 100)
    cross = '<button aria-label="close" style="position:absolute;right:3px;top:2px;padding:0 3px">×</button>'
    return (
        f'<div role="dialog" style="position:absolute;left:{left}px;top:{top}px;width:125px;background:#fff;'
        f"color:#222;border:1px solid #888;"
        f'padding:4px"><b>{escape(words.title(2))}</b>{cross}<p>{escape(words.sentence(3, 7))}</p>{_button(words)}'
        f" {_button(words)}</div>"
    )


def _sections(words: Words) -> str:
    open_one = words.chance.randrange(4)
    return "".join(
        f"<details{' open' * (i == open_one)}><summary>{escape(words.label())}</summary>"
        f"{escape(words.sentence(3, 6))}</details>"
        for i in range(words.pick(2, 3))
    )


WIDGETS: tuple[Widget, ...] = (
    _buttons, _buttons, _links, _links, _ticks, _ticks, _fields, _fields, _select, _select, _tabs, _tabs, _table, _list,
    _icons, _shapes, _shapes, _slider, _menu, _prose, _sections,
)  # fmt: skip


def make_widgets(seed: int) -> Document:
    """The small page of a seed."""
    chance = random.Random(f"widgets/{seed}")
    words = Words(chance)
    size, font = chance.choice([8, 9, 10, 10, 10, 11, 12, 13, 14, 16]), chance.choice(FONTS)
    css = f"{ALWAYS}body{{margin:0;width:160px;height:210px;overflow:hidden;background:#fff;font:14px '{font}'}}"
    css += (
        f"#query{{box-sizing:border-box;height:{BAR}px;padding:3px;font-size:10px;overflow:hidden;"
        f"background:{chance.choice(BARS)}}}"
    )
    css += (
        f"#area{{padding:2px;font-size:{size}px}}p{{margin:3px 0}}details{{margin:2px}}.ctl{{border:1px solid #aaa;"
        f"background:#eee}}"
    )
    if words.maybe(0.5):
        css += f"button,input,select,textarea{{font-family:inherit;font-size:{chance.choice([size, 10, 12])}px}}"
    if words.maybe(0.4):
        back, edge, ink, corner, page = chance.choice(STYLES)
        css += (
            f"button,input[type=submit],input[type=button],select,.ctl{{background:{back};border:1px solid {edge};"
            f"color:{ink};"
            f"border-radius:{corner}px}}"
            f"button,input[type=submit],input[type=button]{{padding:{chance.choice([2, 4, 6])}px "
            f"{chance.choice([5, 8, 12])}px}}"
            f"body{{background:{page};color:{'#eee' if page < '#8' else '#111'}}}a{{color:inherit}}#query{{color:#000}}"
        )
    makers = [chance.choice(WIDGETS) for _ in range(chance.randint(1, 4))]
    parts = [
        f'<div style="margin:{chance.choice([0, 2, 4, 8])}px 0 0 {chance.choice([0, 0, 3, 10])}px">{make(words)}</div>'
        for make in makers
    ]
    if words.maybe(0.12):
        parts.append(_dialog(words))
    said = escape(
        chance.choice(WORDING).format(words.label(), words.button())
        + (" " + words.sentence() if words.maybe(0.25) else "")
    )
    body = f'<div id="query">{said}</div><div id="area">{"".join(parts)}</div>'
    html = f"<!DOCTYPE html><html><head><style>{css}</style></head><body>{body}</body></html>"
    return Document(html, WIDTH, HEIGHT, {"widgets": [make.__name__.strip("_") for make in makers]})
