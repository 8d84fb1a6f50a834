"""Pieces of HTML that pages and screens share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Literal

# The first is drawn twice as often.
FONTS = (
    "Liberation Sans", "Liberation Sans", "DejaVu Sans", "Liberation Serif", "DejaVu Serif", "Liberation Mono",
    "DejaVu Sans Mono",
)  # fmt: skip
SCREEN_FONTS = (*FONTS, "Liberation Sans Narrow", "DejaVu Sans Condensed")
WIDGET_FONTS = (*FONTS[:1] * 3, "DejaVu Sans", "Liberation Serif", "Liberation Mono")
# Where the label of a field stands.
LabelPlace = Literal["above", "left", "inside"]
LABEL_PLACES: tuple[LabelPlace, ...] = ("above", "above", "left", "inside")


def link(text: str) -> str:
    return f'<a href="#">{escape(text)}</a>'


def options(texts: Iterable[str], chosen: str | None) -> str:
    """The entries of a drop-down list, with the one it shows."""
    return "".join(f"<option{' selected' if text == chosen else ''}>{escape(text)}</option>" for text in texts)


def cells(texts: Iterable[str], tag: str = "td") -> str:
    """The cells of a table's row; they hold HTML."""
    return "".join(f"<{tag}>{text}</{tag}>" for text in texts)


def rows(lines: Iterable[Iterable[str]]) -> str:
    """The rows of a table; their cells hold HTML."""
    return "".join(f"<tr>{cells(line)}</tr>" for line in lines)


def definitions(pairs: Mapping[str, str]) -> str:
    """Names and what they stand for."""
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{escape(value)}</dd>' for name, value in pairs.items())}</dl>"


def document(css: str, body: str) -> str:
    return f"<!DOCTYPE html><html><head><style>{css}</style></head><body>{body}</body></html>"


def report(title: str, css: str, body: str) -> str:
    """A page for people, which needs nothing but itself. The title is text, the body HTML."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{css}</style></head><body>{body}</body></html>"
    )
