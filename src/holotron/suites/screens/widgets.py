"""Small pages of 160 by 210 pixels: an instruction bar and some controls beneath it, plain or styled."""

from __future__ import annotations

import random
from collections.abc import Callable
from html import escape

from holotron.suites.kit.html import WIDGET_FONTS, cells, document, link, options, rows
from holotron.suites.kit.words import FIELDS, MENU, OPTIONS, SCREEN_COLOURS, SCREEN_COUNTRIES, TABLE_HEADS
from holotron.suites.screens.icons import NAMES, icon
from holotron.suites.screens.rendering import Document
from holotron.suites.screens.themes import ALWAYS
from holotron.suites.screens.words import Words

WIDTH, HEIGHT, BAR = 160, 210, 50
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
    text = words.caption()
    about = words.optional(0.2, lambda: f' style="width:{words.number(30, 140)}px"')
    if words.maybe(0.15):
        return f'<input type="{words.pick("button", "submit")}" value="{text}">'
    return f"<button{about}{' disabled' * words.maybe(0.05)}>{text}</button>"


def _buttons(words: Words) -> str:
    return words.pick(" ", "", "<br>").join(_button(words) for _ in range(words.number(1, 4)))


def _links(words: Words) -> str:
    def one() -> str:
        text = words.label()
        blue = '<span role="link" style="color:#00f;text-decoration:underline;cursor:pointer">{}</span>'
        return blue.format(text) if words.maybe(0.4) else link(text)

    return words.pick(" ", "<br>", " | ").join(one() for _ in range(words.number(1, 4)))


def _prose(words: Words) -> str:
    parts = words.paragraph(words.pick(1, 2)).split(" ")
    for place in words.chance.sample(range(len(parts)), min(len(parts), words.pick(0, 1, 2))):
        parts[place] = words.pick('<a href="#">{}</a>', "<b>{}</b>", "<i>{}</i>").format(parts[place])
    return f"<p>{' '.join(parts)}</p>"


def _ticks(words: Words) -> str:
    kind = words.pick("checkbox", "checkbox", "radio")
    texts = [words.label() for _ in range(words.number(2, 6))]
    on = words.chance.randrange(len(texts) + 1)
    lines = []
    for index, text in enumerate(texts):
        checked = index == on if kind == "radio" else words.maybe(0.4)
        box = f'<input type="{kind}" name="g"{" checked" * checked}>'
        lines.append(f"<label>{box}{text}</label>" if words.maybe(0.8) else f"{box} {text}")
    return words.pick("<br>", "<br>", "<br>", " ").join(lines)


def _field(words: Words) -> str:
    name = words.pick(*FIELDS)
    value = words.optional(0.4, words.value)
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
    label = f"<label{bold}>{name}{words.pick('', ':')}</label>{gap}"
    return f'{label}<input type="{kind}" style="width:{min(width, 90)}px" value="{value}">'


def _fields(words: Words) -> str:
    return "".join(f"<p>{_field(words)}</p>" for _ in range(words.number(1, 3)))


def _select(words: Words) -> str:
    texts = words.some(words.pick(SCREEN_COUNTRIES, OPTIONS, MENU), words.number(2, 6))
    size = f' size="{len(texts)}"' if words.maybe(0.25) else ""
    entries = options(texts, words.pick(*texts))
    name = f"{words.pick(*FIELDS)}: " if words.maybe(0.4) else ""
    return f'{name}<select{size} style="max-width:150px">{entries}</select>'


def _tabs(words: Words) -> str:
    texts = [f"Tab #{i + 1}" for i in range(3)] if words.maybe(0.3) else words.some(MENU, words.pick(2, 3))
    chosen, tabs = words.pick(*texts), ""
    for text in texts:
        style = "display:inline-block;padding:3px 5px;"
        style += "background:#fff;color:#000;border-bottom-color:#fff" if text == chosen else ""
        selected = str(text == chosen).lower()
        tabs += f'<span role="tab" class="ctl" aria-selected="{selected}" style="{style}">{text}</span>'
    panel = f'<div style="border:1px solid #bbb;padding:3px">{words.sentence(4, 8)}</div>'
    return f'<div role="tablist">{tabs}</div>{panel}'


def _table(words: Words) -> str:
    heads, count = words.some(TABLE_HEADS, words.pick(2, 3)), words.number(2, 5)
    makers = [words.pick(words.first, words.figure, words.word, words.string) for _ in heads]
    top = words.optional(0.7, lambda: cells(heads, "th"))
    body = rows([make() for make in makers] for _ in range(count))
    about = f'border="{words.pick(0, 1, 1)}" style="font-size:inherit;border-collapse:collapse"'
    return f"<table {about}><tr>{top}</tr>{body}</table>"


def _list(words: Words) -> str:
    tag = words.pick("ul", "ol")
    items = "".join(f"<li>{words.label()}</li>" for _ in range(words.number(2, 6)))
    return f'<{tag} style="margin:2px;padding-left:20px">{items}</{tag}>'


def _icons(words: Words) -> str:
    size, button = words.pick(12, 14, 16, 20, 24), words.maybe(0.4)
    parts = []
    for name in words.chance.sample(NAMES, words.number(2, 5)):
        drawn = icon(name, named=not button, size=f"{size}px", filled=words.maybe(0.1))
        parts.append(f'<button aria-label="{name}">{drawn}</button>' if button else drawn)
    colour = words.optional(0.3, lambda: words.pick(*SCREEN_COLOURS[:8])) or "inherit"
    return f'<div style="color:{colour}">{" ".join(parts)}</div>'


def _shapes(words: Words) -> str:
    """Coloured shapes, letters and digits, on a grid so that none covers another."""
    cell, columns, lines = words.pick((26, 6, 4), (38, 4, 3), (50, 3, 2))
    places = words.chance.sample(range(columns * lines), words.number(2, min(9, columns * lines)))
    drawn = []
    for place in places:
        side = words.chance.uniform(0.35, 0.8) * cell
        left, top = (at * cell + (cell - side) / 2 for at in (place % columns, place // columns))
        x, y, size, right, bottom = (f"{each:.0f}" for each in (left, top, side, left + side, top + side))
        middle, center, half = (f"{each:.0f}" for each in (left + side / 2, top + side / 2, side / 2))
        fill = f'fill="{words.pick(*(colour for colour in SCREEN_COLOURS if colour != "white"))}"'
        drawn.append(
            words.pick(
                f'<rect x="{x}" y="{y}" width="{size}" height="{size}" {fill}/>',
                f'<rect x="{x}" y="{top + side / 5:.0f}" width="{size}" height="{side * 0.55:.0f}" {fill}/>',
                f'<circle cx="{middle}" cy="{center}" r="{half}" {fill}/>',
                f'<polygon points="{middle},{y} {right},{bottom} {x},{bottom}" {fill}/>',
                f'<text x="{x}" y="{bottom}" font-size="{max(side, 10):.0f}" {fill}>{words.string(1, 1)}</text>',
            )
        )
    area = f'width="{cell * columns}" height="{cell * lines}"'
    return f'<svg {area} style="display:block;background:#fff">{"".join(drawn)}</svg>'


def _slider(words: Words) -> str:
    name = words.pick("", "Volume ", "Level ", words.noun().capitalize() + " ")
    style = f"width:{words.number(60, 110)}px"
    return f'<p>{name}<input type="range" style="{style}" value="{words.chance.randrange(101)}"></p>'


def _menu(words: Words) -> str:
    items = dict.fromkeys(words.caption() for _ in range(words.number(2, 6)))
    parts = "".join(f'<div role="menuitem" style="padding:2px 6px">{text}</div>' for text in items)
    return f'<div class="ctl" style="width:{words.number(80, 120)}px">{parts}</div>'


def _dialog(words: Words) -> str:
    left, top = words.number(2, 24), words.number(55, 100)
    cross = '<button aria-label="close" style="position:absolute;right:3px;top:2px;padding:0 3px">×</button>'
    style = f"position:absolute;left:{left}px;top:{top}px;width:125px;background:#fff;color:#222;border:1px solid #888;"
    text = f"<b>{words.title(2)}</b>{cross}<p>{words.sentence(3, 7)}</p>"
    return f'<div role="dialog" style="{style}padding:4px">{text}{_button(words)} {_button(words)}</div>'


def _sections(words: Words) -> str:
    open_one = words.chance.randrange(4)
    return "".join(
        f"<details{' open' * (i == open_one)}><summary>{words.label()}</summary>{words.sentence(3, 6)}</details>"
        for i in range(words.pick(2, 3))
    )


WIDGETS: tuple[Widget, ...] = (
    _buttons, _buttons, _links, _links, _ticks, _ticks, _fields, _fields, _select, _select, _tabs, _tabs, _table, _list,
    _icons, _shapes, _shapes, _slider, _menu, _prose, _sections,
)  # fmt: skip


def make_widgets(seed: int) -> Document:
    """The small page of a seed."""
    words = Words(random.Random(f"widgets/{seed}"))
    css = _style(words)
    makers = [words.pick(*WIDGETS) for _ in range(words.number(1, 4))]
    parts = [
        f'<div style="margin:{words.pick(0, 2, 4, 8)}px 0 0 {words.pick(0, 0, 3, 10)}px">{make(words)}</div>'
        for make in makers
    ]
    parts.append(words.optional(0.12, lambda: _dialog(words)))
    said = words.pick(*WORDING).format(words.label(), words.caption())
    said += words.optional(0.25, lambda: " " + words.sentence())
    body = f'<div id="query">{escape(said)}</div><div id="area">{"".join(parts)}</div>'
    about = {"widgets": [make.__name__.strip("_") for make in makers]}
    return Document(document(css, body), WIDTH, HEIGHT, about)


def _style(words: Words) -> str:
    size, font = words.pick(8, 9, 10, 10, 10, 11, 12, 13, 14, 16), words.pick(*WIDGET_FONTS)
    css = (
        f"{ALWAYS}body{{margin:0;width:160px;height:210px;overflow:hidden;background:#fff;font:14px '{font}'}}"
        f"#query{{box-sizing:border-box;height:{BAR}px;padding:3px;font-size:10px;overflow:hidden;"
        f"background:{words.pick(*BARS)}}}#area{{padding:2px;font-size:{size}px}}p{{margin:3px 0}}"
        f"details{{margin:2px}}.ctl{{border:1px solid #aaa;background:#eee}}"
    )
    if words.maybe(0.5):
        css += f"button,input,select,textarea{{font-family:inherit;font-size:{words.pick(size, 10, 12)}px}}"
    if words.maybe(0.4):
        back, edge, ink, corner, page = words.pick(*STYLES)
        css += (
            f"button,input[type=submit],input[type=button],select,.ctl{{background:{back};border:1px solid {edge};"
            f"color:{ink};border-radius:{corner}px}}button,input[type=submit],input[type=button]"
            f"{{padding:{words.pick(2, 4, 6)}px {words.pick(5, 8, 12)}px}}"
            f"body{{background:{page};color:{'#eee' if page < '#8' else '#111'}}}a{{color:inherit}}#query{{color:#000}}"
        )
    return css
