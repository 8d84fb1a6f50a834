"""Controls under a topic, with or without a button: of any kind, or for something people do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from holotron.suites.kit.words import CITIES, LINKS, TOPICS
from holotron.suites.pages.builder import PageBuilder, and_list
from holotron.suites.pages.composed.activities import Activity
from holotron.suites.pages.composed.parts import (
    BOXES,
    CHOICES,
    COUNTED,
    FIELDS,
    Names,
    Part,
    box_part,
    count_part,
    one_part,
    star_part,
    text_part,
)
from holotron.suites.pages.values import quoted, value_of

BUTTONS = ("Save", "OK", "Send", "Apply", "Submit", "Done", "Confirm", "Update", "Continue")


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


def any_block(s: PageBuilder, names: Names, name: str, *, wanted: bool) -> Block:
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


def _joined(s: PageBuilder, said: Sequence[str]) -> str:
    if len(said) > 1 and s.maybe(0.2):
        return s.pick("; ", ", ").join(said)
    return and_list(said) if said else ""


def _block(
    s: PageBuilder,
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


def activity_block(s: PageBuilder, names: Names, name: str, activity: Activity) -> Block:
    """A form that its topic explains."""
    values = [value_of(s, field.kind) for field in activity.fields]
    new = s.maybe(0.6)
    parts = [
        text_part(s, f"{name}p{index}", s.pick(*field.labels), field.kind, value, new=new)
        for index, (field, value) in enumerate(zip(activity.fields, values, strict=True))
    ]
    topic, button = s.pick(*activity.topics), s.pick(*activity.buttons)
    names.take(topic)
    said = s.pick(*activity.sayings).format(*(quoted(s, value) for value in values))
    says = s.pick("Thank you.", "Done.")
    return _block(s, name, topic, parts, said, button, by_key=s.maybe(0.35), says=says)
