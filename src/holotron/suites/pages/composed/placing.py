"""Where blocks stand on a page: openly, or behind tabs, folds, dialogs, sections or a menu."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from holotron.suites.pages.behaviour import read_script
from holotron.suites.pages.builder import PageBuilder, PageContent, dialog
from holotron.suites.pages.composed.blocks import Block


def place(s: PageBuilder, blocks: Sequence[Block]) -> tuple[str, list[list[str]], bool]:
    """The blocks on a page, the openers that lead to each, and whether they are hidden behind them."""
    style = s.pick("open", "open", "tabs", "folds", "dialogs", "dialogs", "sections", "menu")
    if style == "open":
        wide = len(blocks) > 1 and s.maybe(0.4)
        tile = ' class="tile"' if s.maybe(0.5) else ""
        inside = "".join(f"<section{tile}><h2>{escape(b.topic)}</h2>{b.html}</section>" for b in blocks)
        columns = 'style="display:grid;grid-template-columns:1fr 1fr;gap:1.5em;align-items:start"'
        return (f"<div {columns}>{inside}</div>" if wide else inside), [[] for _ in blocks], False
    paths = [[f"o{index}"] for index in range(len(blocks))]
    if style == "tabs":
        heads = "".join(
            f'<div id="o{index}" data-opens="h{index}"{"" if index else " class=now"}>{escape(b.topic)}</div>'
            for index, b in enumerate(blocks)
        )
        panels = "".join(
            f'<div class="panel" id="h{index}"{" hidden" if index else ""}>{b.html}</div>'
            for index, b in enumerate(blocks)
        )
        return f'<div class="tabs">{heads}</div>{panels}', paths, len(blocks) > 1
    if style == "folds":
        folds = "".join(
            f'<div class="fold"><div class="head" id="o{index}" data-opens="h{index}">{s.pick("", "▸ ")}'
            f'{escape(b.topic)}</div><div class="inside" id="h{index}" hidden>{b.html}</div></div>'
            for index, b in enumerate(blocks)
        )
        return folds, paths, True
    in_dialogs = style == "dialogs" or (style == "menu" and s.maybe(0.6))
    hidden = "".join(
        _dialog(s, f"h{index}", b) if in_dialogs else _section(s, f"h{index}", b) for index, b in enumerate(blocks)
    )
    topics = [b.topic for b in blocks]
    if style == "menu":
        openers = _menu(s, "o", topics)
        paths = [["o", f"o{index}"] for index in range(len(blocks))]
    else:
        openers = _openers(s, topics)
    start = s.heading(s.pick("Welcome", "Overview", "My page", "Start"))
    start += openers + s.prose(s.number(1, 4)) if s.maybe(0.6) else s.prose(s.number(1, 3)) + openers
    return f'<section data-view="start">{start}</section>{hidden}', paths, True


def _dialog(s: PageBuilder, name: str, block: Block) -> str:
    close = f'<button type="button" class="close small" style="float:right">{s.pick("×", "✕", "Close")}</button>'
    return dialog(f"{close}<h2>{escape(block.topic)}</h2>{block.html}", name, hidden=True)


def _section(s: PageBuilder, name: str, block: Block) -> str:
    back = f'<p><a href="#" class="back">{s.pick("← Back", "Back", "‹ Overview")}</a></p>'
    inside = f"{back}<h1>{escape(block.topic)}</h1>{block.html}"
    return f'<section id="{name}" data-view="{name}" hidden>{inside}</section>'


def _openers(s: PageBuilder, topics: Sequence[str]) -> str:
    shape, around = s.pick(
        ('<button type="button" {}>{}</button>', "row"),
        ('<button type="button" class="main" {}>{}</button>', "row"),
        ('<a href="#" {}>{}</a>', "row"),
        ('<p><a href="#" {}>{}</a></p>', ""),
        ('<div class="tile" style="cursor:pointer" {}>{}</div>', "grid"),
        ('<div class="item between"><span>{1}</span><button type="button" class="small" {0}>{2}</button></div>', ""),
    )
    word = s.pick("Open", "Edit", "Show", "→", "Start")
    made = "".join(
        shape.format(f'id="o{index}" data-opens="h{index}"', escape(topic), word) for index, topic in enumerate(topics)
    )
    return f'<div class="{around}" style="margin:1em 0">{made}</div>'


def _menu(s: PageBuilder, name: str, topics: Sequence[str]) -> str:
    items = "".join(
        f'<div id="{name}{index}" data-opens="h{index}">{escape(topic)}</div>' for index, topic in enumerate(topics)
    )
    label = s.pick("Menu", "More", "☰", "Actions", "⋯", "Options", "Tools ▾")
    side = ' style="display:flex;justify-content:flex-end"' if s.maybe(0.4) else ""
    return f"<div{side}>{menu(name, label, items, leftward=bool(side))}</div>"


def menu(name: str, label: str, items: str, *, leftward: bool, classes: str = "") -> str:
    """A button with a list behind it, which opens towards the left where there is no room on the right."""
    shift = "right:0;left:auto" if leftward else ""
    return (
        f'<div class="menu" style="display:inline-block"><button type="button" class="{classes}" id="{name}" '
        f'data-opens="{name}-list">{label}</button><div class="list" id="{name}-list" style="{shift}" hidden>{items}'
        f"</div></div>"
    )


def page_of(
    s: PageBuilder,
    text: str,
    body: str,
    blocks: Sequence[dict[str, Any]],
    title: str,
    answer: str | None = None,
) -> PageContent:
    """The page around what was placed."""
    data: dict[str, Any] = {
        "blocks": list(blocks),
        "says": "Done.",
        "missing": s.pick("Please fill in all fields.", "Something is missing.", "This field is needed."),
    }
    if answer is not None:
        data["answer"] = answer
    style = "<style>.chips .now { background: var(--accent) !important; color: var(--on) !important; }"
    style += (
        " .stars > span { color: var(--line); } .stars .now { background: none !important; color: #e0a100 !important; }"
    )
    return PageContent(text, f"{style}</style>{body}", data, title, read_script("composed"))
