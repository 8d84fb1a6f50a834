"""The controls that blocks are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from holotron.suites.pages.builder import PageBuilder
from holotron.suites.pages.data import read_data
from holotron.suites.pages.values import quoted, value_of

# Labels of fields and what kind of thing is written into them.
FIELDS: Sequence[tuple[str, str]] = tuple(read_data("choices")["part_fields"].items())
BOXES: Sequence[str] = read_data("choices")["part_boxes"]
CHOICES: Sequence[tuple[str, Sequence[str]]] = tuple(read_data("choices")["part_choices"].items())
COUNTED = ("Adults", "Children", "Bags", "Tickets", "Copies", "Nights", "Rooms", "Pieces", "Bottles", "Guests")


@dataclass(frozen=True)
class Part:
    """A control: its HTML, the state it is wanted in, and what the task says of it; nothing where it stays as it is."""

    html: str
    data: Mapping[str, Any]
    said: str = ""


@dataclass
class Names:
    """Words of one page, each used once and none a part of another, so that every one of them says what is meant."""

    builder: PageBuilder
    taken: list[str] = field(default_factory=list)

    def new(self, options: Sequence[str], coined: float = 0.25) -> str:
        s = self.builder
        while True:
            word = s.coined().title() if s.maybe(coined) else s.pick(*options)
            if self.take(word):
                return word
            coined = min(1.0, coined + 0.1)

    def take(self, word: str) -> bool:
        low = word.lower()
        if any(low in other or other in low for other in self.taken):
            return False
        self.taken.append(low)
        return True


def _said(s: PageBuilder, how: str, label: str, value: object = "") -> str:
    text = value if isinstance(value, int) else quoted(s, str(value))
    return s.saying(f"part_{how}").format(label=quoted(s, label), lower=label.lower(), value=text)


def text_part(s: PageBuilder, name: str, label: str, kind: str, value: str | None, *, new: bool = False) -> Part:
    """`new`: an empty field that is emptied again once it was sent; without a value it is to be left as it is."""
    before = value_of(s, kind) if not new and kind != "password" and s.maybe(0.3) else ""
    shape = "password" if kind == "password" else "area" if kind == "sentence" and s.maybe(0.7) else "text"
    html = s.field(name, label, shape, before)
    if new:
        html = html.replace(f'id="{name}"', f'id="{name}" class="new"')
    said = "" if value is None else _said(s, "field", label, value)
    return Part(html, {"kind": "field", "id": name, "wanted": before if value is None else value}, said)


def box_part(s: PageBuilder, name: str, label: str, wanted: bool, *, switch: bool) -> Part:
    on = s.maybe(0.4)
    said = _said(s, "off" if on else "on", label) if wanted else ""
    return Part(s.check(name, label, on, switch), {"kind": "box", "id": name, "wanted": on != wanted}, said)


def one_part(s: PageBuilder, name: str, label: str, options: Sequence[str], wanted: bool) -> Part:
    """One of several: radio buttons, a drop-down list or buttons side by side."""
    kind, old = s.pick("radios", "list", "chips"), s.number(0, len(options) - 1)
    new = s.pick(*(index for index in range(len(options)) if index != old)) if wanted else old
    said = _said(s, "one", label, options[new]) if wanted else ""
    if kind == "radios":
        begun = options[old] if not wanted or s.maybe(0.5) else None
        return Part(s.radios(name, label, options, begun), {"kind": kind, "id": name, "wanted": new}, said)
    if kind == "list":
        html = s.select(name, label, options, options[old])
        return Part(html, {"kind": kind, "id": name, "wanted": options[new]}, said)
    chips = "".join(
        f'<button type="button" class="small{" now" if index == old else ""}">{escape(option)}</button>'
        for index, option in enumerate(options)
    )
    html = f'<h3>{escape(label)}</h3><div class="row chips" id="{name}" data-now="{old}">{chips}</div>'
    return Part(html, {"kind": kind, "id": name, "wanted": new}, said)


def count_part(s: PageBuilder, name: str, label: str, wanted: bool) -> Part:
    old = s.number(0, 4)
    new = s.pick(*(count for count in range(max(0, old - 3), old + 4) if count != old)) if wanted else old
    less, more = (
        f'<button type="button" class="small {way}" id="{name}-{way}">{sign}</button>'
        for way, sign in (("less", s.pick("−", "-")), ("more", "+"))
    )
    shown = f'<span style="min-width:7em">{escape(label)}</span>{less}<b id="{name}">{old}</b>{more}'
    html = f'<div class="check">{shown}</div>'
    return Part(html, {"kind": "count", "id": name, "wanted": new}, _said(s, "count", label, new) if wanted else "")


def star_part(s: PageBuilder, name: str, label: str) -> Part:
    stars = "".join('<span style="cursor:pointer;font-size:1.6em">★</span>' for _ in range(5))
    html = f'<h3>{escape(label)}</h3><div class="row chips stars" id="{name}">{stars}</div>'
    given = s.number(1, 5)
    return Part(html, {"kind": "chips", "id": name, "wanted": given - 1}, _said(s, "stars", label, given))
