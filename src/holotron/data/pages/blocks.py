"""Pages put together by chance: controls make up blocks, and blocks stand openly or behind tabs, folds and dialogs.

A template says the same thing in other words and looks; here what is to be done, where it is hidden and what else
stands around it are drawn apart from each other, so that a policy has to find its way by what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from holotron.data.pages.sketch import Drawn, Sketch
from holotron.data.pages.words import CITIES, COLOURS, LINKS, SENTENCES, THINGS, TODOS, TOPICS

CODE_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789"
# Labels of fields and what kind of thing is written into them.
FIELDS = (
    ("Name", "person"), ("First name", "word"), ("Nickname", "user"), ("City", "city"), ("Street", "street"),
    ("Postcode", "digits"), ("Phone", "digits"), ("E-mail", "mail"), ("Company", "word"), ("Title", "phrase"),
    ("Subject", "phrase"), ("Reference", "code"), ("Voucher", "code"), ("Amount", "digits"), ("Product", "thing"),
    ("Team", "word"), ("Room", "code"), ("Flight", "code"), ("Destination", "city"), ("Guest", "person"),
    ("Author", "person"), ("Keyword", "word"), ("Song", "phrase"), ("Licence plate", "code"), ("Account", "user"),
    ("Comment", "sentence"), ("Message", "sentence"), ("Note", "todo"), ("Website", "address"), ("Budget", "digits"),
)  # fmt: skip
BOXES = (
    "Express delivery", "I am a member", "Gift wrap", "Send me a copy", "Vegetarian", "With breakfast", "Round trip",
    "Insurance", "Urgent", "Public", "Remind me", "Pay by invoice", "Wi-Fi", "Bluetooth", "Location", "Vibration",
    "Spell check", "Auto save", "Show pictures", "Night mode", "Large print", "Private", "Flash", "Repeat", "Shuffle",
    "Olives", "Cheese", "Onions", "Mushrooms", "Garlic",
)  # fmt: skip
CHOICES = (
    ("Size", ("Small", "Medium", "Large", "Extra large")),
    ("Seat", ("Window", "Aisle", "Middle")),
    ("Payment", ("Card", "Cash", "Invoice", "Voucher")),
    ("Delivery", ("By post", "By courier", "Pick up")),
    ("Day", ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")),
    ("Time of day", ("Morning", "Noon", "Evening")),
    ("Level", ("Beginner", "Advanced", "Expert")),
    ("Priority", ("Low", "Normal", "High")),
    ("Ticket", ("Adult", "Child", "Senior", "Student")),
    ("Language", ("English", "German", "Spanish", "French", "Italian")),
    ("Quality", ("Draft", "Good", "Best")),
    ("Sort by", ("Price", "Name", "Date", "Rating")),
    ("Room type", ("Single", "Double", "Suite")),
    ("Currency", ("Euro", "Dollar", "Pound", "Yen")),
)
COUNTED = ("Adults", "Children", "Bags", "Tickets", "Copies", "Nights", "Rooms", "Pieces", "Bottles", "Guests")
BUTTONS = ("Save", "OK", "Send", "Apply", "Submit", "Done", "Confirm", "Update", "Continue")
# What each kind of change is called.
SAYINGS: Mapping[str, tuple[str, ...]] = {
    "field": (
        "set {label} to {value}", "enter {value} as {lower}", "type {value} into {label}", "{label}: {value}",
        "write {value} in the field {label}", "fill in {value} for {lower}", "put {value} under {label}",
    ),
    "on": ("tick {label}", "check {label}", "turn on {label}", "switch {label} on", "enable {label}"),
    "off": ("untick {label}", "uncheck {label}", "turn off {label}", "switch {label} off", "disable {label}"),
    "one": (
        "choose {value}", "{label}: {value}", "choose {value} for {lower}", "select {value}", "set {label} to {value}",
        "take {value} as {lower}",
    ),
    "count": ("set {label} to {value}", "{value} {lower}", "I want {value} {lower}", "make it {value} {lower}"),
    "stars": ("give {value} stars for {lower}", "rate {lower} with {value} stars", "{value} of 5 stars for {lower}"),
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A control: how it looks, how it is wanted, and what the task says of it, which is nothing if it is to be left."""

    html: str
    data: Mapping[str, Any]
    said: str = ""


@dataclass(frozen=True)
class Block:
    """Some parts under a topic. Without a button everything takes effect at once."""

    name: str
    topic: str
    html: str
    parts: Sequence[Mapping[str, Any]]
    said: str
    button: bool = True
    by_key: bool = False
    says: str = "Saved."

    def data(self, path: Sequence[str]) -> dict[str, Any]:
        button = f"{self.name}-ok" if self.button else None
        return {
            "id": self.name,
            "parts": [dict(part) for part in self.parts],
            "path": list(path),
            "button": button,
            "by_key": self.by_key,
            "says": self.says,
        }


@dataclass
class Names:
    """Words of one page, each used once and none a part of another, so that every one of them says what is meant."""

    sketch: Sketch
    taken: list[str] = field(default_factory=list)

    def new(self, options: Sequence[str], coined: float = 0.25) -> str:
        s = self.sketch
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


def quoted(s: Sketch, text: str) -> str:
    return s.pick(text, f'"{text}"')


def value_of(s: Sketch, kind: str) -> str:
    """Something to write into a field of that kind."""
    match kind:
        case "person":
            return s.person()
        case "word":
            return s.coined().title()
        case "user":
            return s.user()
        case "mail":
            return s.mail()
        case "password":
            return s.password()
        case "city":
            return s.pick(*s.fresh(CITIES))
        case "street":
            return f"{s.coined().title()} {s.pick('Street', 'Road', 'Lane')} {s.number(1, 99)}"
        case "colour":
            return s.pick(*s.fresh(COLOURS))
        case "thing":
            return s.pick(*s.fresh(THINGS))
        case "todo":
            return s.pick(*s.fresh(TODOS))
        case "sentence":
            return s.pick(*SENTENCES)
        case "address":
            return f"{s.coined()}.{s.pick('com', 'org', 'net')}"
        case "time":
            return f"{s.number(7, 21)}:{s.pick('00', '15', '30', '45')}"
        case "few":
            return str(s.number(1, 9))
        case "digits":
            return str(s.number(1, 10 ** s.number(1, 6)))
        case "code":
            return "".join(s.chance.choices(CODE_LETTERS, k=s.number(3, 7)))
    return " ".join(s.coined() for _ in range(s.number(2, 3))).capitalize()


# ---- parts ----


def _said(s: Sketch, how: str, label: str, value: object = "") -> str:
    text = value if isinstance(value, int) else quoted(s, str(value))
    return s.pick(*SAYINGS[how]).format(label=quoted(s, label), lower=label.lower(), value=text)


def text_part(s: Sketch, name: str, label: str, kind: str, value: str | None, *, new: bool = False) -> Part:
    """`new`: an empty field that is emptied again once it was sent; without a value it is to be left as it is."""
    before = value_of(s, kind) if not new and kind != "password" and s.maybe(0.3) else ""
    shape = "password" if kind == "password" else "area" if kind == "sentence" and s.maybe(0.7) else "text"
    html = s.field(name, label, shape, before)
    if new:
        html = html.replace(f'id="{name}"', f'id="{name}" class="new"')
    said = "" if value is None else _said(s, "field", label, value)
    return Part(html, {"kind": "field", "id": name, "wanted": before if value is None else value}, said)


def box_part(s: Sketch, name: str, label: str, wanted: bool, *, switch: bool) -> Part:
    on = s.maybe(0.4)
    said = _said(s, "off" if on else "on", label) if wanted else ""
    return Part(s.check(name, label, on, switch), {"kind": "box", "id": name, "wanted": on != wanted}, said)


def one_part(s: Sketch, name: str, label: str, options: Sequence[str], wanted: bool) -> Part:
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


def count_part(s: Sketch, name: str, label: str, wanted: bool) -> Part:
    old = s.number(0, 4)
    new = s.pick(*(count for count in range(max(0, old - 3), old + 4) if count != old)) if wanted else old
    less, more = (
        f'<button type="button" class="small {way}" id="{name}-{way}">{sign}</button>'
        for way, sign in (("less", s.pick("−", "-")), ("more", "+"))
    )
    shown = f'<span style="min-width:7em">{escape(label)}</span>{less}<b id="{name}">{old}</b>{more}'
    html = f'<div class="check">{shown}</div>'
    return Part(html, {"kind": "count", "id": name, "wanted": new}, _said(s, "count", label, new) if wanted else "")


def star_part(s: Sketch, name: str, label: str) -> Part:
    stars = "".join('<span style="cursor:pointer;font-size:1.6em">★</span>' for _ in range(5))
    html = f'<h3>{escape(label)}</h3><div class="row chips stars" id="{name}">{stars}</div>'
    given = s.number(1, 5)
    return Part(html, {"kind": "chips", "id": name, "wanted": given - 1}, _said(s, "stars", label, given))


# ---- blocks ----


def any_block(s: Sketch, names: Names, name: str, *, wanted: bool) -> Block:
    """Controls of any kind under any topic, some of which are to be changed."""
    has_button = s.maybe(0.65)
    count = s.number(1, 5)
    targets = set(s.some(range(count), min(count, s.pick(1, 1, 1, 2, 2, 3)))) if wanted else set()
    kinds = ("field", "field", "box", "one", "count") if has_button else ("box", "box", "one", "count")
    favourite = s.pick(*kinds)  # a block is mostly of one kind
    switch = s.maybe(0.4)
    parts = []
    for index in range(count):
        is_target, part = index in targets, f"{name}p{index}"
        match favourite if s.maybe(0.7) else s.pick(*kinds):
            case "field":
                label, kind = s.pick(*FIELDS)
                label = label if names.take(label) else names.new((label,), 1.0)
                parts.append(text_part(s, part, label, kind, value_of(s, kind) if is_target else None))
            case "box":
                parts.append(box_part(s, part, names.new(BOXES), is_target, switch=switch))
            case "one":
                label, options = s.pick(*CHOICES)
                label = label if names.take(label) else names.new((label,), 1.0)
                if s.maybe(0.3):
                    options = tuple(names.new(CITIES, 0.7) for _ in range(s.number(2, 4)))
                if is_target and s.maybe(0.12):
                    parts.append(star_part(s, part, label))
                else:
                    parts.append(one_part(s, part, label, options, is_target))
            case _:
                parts.append(count_part(s, part, names.new(COUNTED, 0.2), is_target))
    said = [part.said for part in parts if part.said]
    topic, button = names.new((*LINKS, *TOPICS)), s.pick(*BUTTONS)
    ending = s.pick("", "", " and press {}", ", then {}", ". Then click {}").format(quoted(s, button))
    sentence = _joined(s, said) + (ending if has_button else "")
    by_key = bool(parts[-1].said) and s.maybe(0.3)
    return _block(s, name, topic, parts, sentence, button if has_button else None, by_key=by_key)


def _joined(s: Sketch, said: Sequence[str]) -> str:
    if len(said) < 2:
        return "".join(said)
    if s.maybe(0.2):
        return s.pick("; ", ", ").join(said)
    return f"{', '.join(said[:-1])} and {said[-1]}"


def _block(
    s: Sketch,
    name: str,
    topic: str,
    parts: Sequence[Part],
    said: str,
    button: str | None,
    *,
    by_key: bool,
    says: str = "",
) -> Block:
    html = "".join(part.html for part in parts)
    if button is not None:
        cancel = f'<button type="button">{s.pick("Reset", "Help")}</button>' if s.maybe(0.15) else ""
        ok = f'<button type="submit" id="{name}-ok" class="main">{escape(button)}</button>'
        beside = len(parts) == 1 and s.maybe(0.4)
        around = f'<div class="row{s.pick("", "", " end")}">{ok}{cancel}</div>'
        html = f'<div class="row">{html}<div class="field">{ok}</div></div>' if beside else html + around
    tag = "form novalidate" if button is not None else "div"
    html = f'<{tag} id="{name}">{html}</{tag.split()[0]}>'
    return Block(
        name,
        topic,
        html,
        [part.data for part in parts],
        said,
        button is not None,
        by_key and parts[-1].data["kind"] == "field" and "<textarea" not in parts[-1].html,
        says or s.pick("Saved.", "Done.", "Thank you.", f"{topic}: saved."),
    )


def theme_block(s: Sketch, names: Names, name: str, theme: Theme) -> Block:
    """A form that its topic explains."""
    values = [value_of(s, kind) for _, kind in theme.fields]
    new = s.maybe(0.6)
    parts = [
        text_part(s, f"{name}p{index}", s.pick(*labels), kind, value, new=new)
        for index, ((labels, kind), value) in enumerate(zip(theme.fields, values, strict=True))
    ]
    topic, button = s.pick(*theme.topics), s.pick(*theme.buttons)
    names.take(topic)
    said = s.pick(*theme.sayings).format(*(quoted(s, value) for value in values))
    says = s.pick("Thank you.", "Done.")
    return _block(s, name, topic, parts, said, button, by_key=s.maybe(0.35), says=says)


@dataclass(frozen=True)
class Theme:
    """Something people do on pages: what it is called, what it wants to know, and how one asks for it."""

    topics: tuple[str, ...]
    fields: tuple[tuple[tuple[str, ...], str], ...]
    buttons: tuple[str, ...]
    sayings: tuple[str, ...]


# ---- pages ----


def place(s: Sketch, blocks: Sequence[Block]) -> tuple[str, list[list[str]], bool]:
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


def _dialog(s: Sketch, name: str, block: Block) -> str:
    close = f'<button type="button" class="close small" style="float:right">{s.pick("×", "✕", "Close")}</button>'
    inside = f"{close}<h2>{escape(block.topic)}</h2>{block.html}"
    return f'<div class="veil" id="{name}" hidden><div class="dialog">{inside}</div></div>'


def _section(s: Sketch, name: str, block: Block) -> str:
    back = f'<p><a href="#" class="back">{s.pick("← Back", "Back", "‹ Overview")}</a></p>'
    inside = f"{back}<h1>{escape(block.topic)}</h1>{block.html}"
    return f'<section id="{name}" data-view="{name}" hidden>{inside}</section>'


def _openers(s: Sketch, topics: Sequence[str]) -> str:
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


def _menu(s: Sketch, name: str, topics: Sequence[str]) -> str:
    items = "".join(
        f'<div id="{name}{index}" data-opens="h{index}">{escape(topic)}</div>' for index, topic in enumerate(topics)
    )
    label = s.pick("Menu", "More", "☰", "Actions", "⋯", "Options", "Tools ▾")
    side = ' style="display:flex;justify-content:flex-end"' if s.maybe(0.4) else ""
    shift = "right:0;left:auto" if side else ""
    return (
        f'<div{side}><div class="menu" style="display:inline-block"><button type="button" id="{name}" '
        f'data-opens="{name}-list">{label}</button><div class="list" id="{name}-list" style="{shift}" hidden>{items}'
        f"</div></div></div>"
    )


def page_of(
    s: Sketch,
    text: str,
    body: str,
    blocks: Sequence[dict[str, Any]],
    title: str,
    answer: str | None = None,
) -> Drawn:
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
    return Drawn(text, f"{style}</style>{body}", _script(), data, title)


@cache
def _script() -> str:
    return Path(__file__).with_name("blocks.js").read_text()
