"""What the vocabularies share: reading values that may be wrong, and writing points, keys and scrolls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from holotron.actions import action as a
from holotron.actions.action import Action, ActionError, parse_action
from holotron.actions.coordinates import Space
from holotron.actions.keys import join_keys, split_keys

MIDDLE = (500, 500)
# What several vocabularies call a click, by its button.
CLICKS = {"left": "left_click", "right": "right_click", "middle": "middle_click"}
# One turn of the wheel, where a vocabulary counts in turns.
PERCENT_PER_TURN = 10
Point = tuple[int, int]


class Inexpressible(ActionError):
    """One vocabulary has no words for what was said in the other."""

    def __init__(self, what: str, vocabulary: str) -> None:
        super().__init__(f"{vocabulary} cannot express {what}")


def inexpressible(action: Action, vocabulary: str) -> Inexpressible:
    """The error for an action that mouse and keys cannot express."""
    if isinstance(action, a.SwitchTab):
        return Inexpressible(f"going to tab {action.index}; keys reach tabs 0 to 7", vocabulary)
    what = f"a click with the {action.button} button" if isinstance(action, a.Click) else action.action
    return Inexpressible(what, vocabulary)


def build(kind: str, at: Point | None = None, to: Point | None = None, **fields: Any) -> Action:
    """An action of ours from values that may be wrong; a field that is None is left out."""
    (x, y), (to_x, to_y) = at or (None, None), to or (None, None)
    fields |= {"x": x, "y": y, "to_x": to_x, "to_y": to_y}
    return parse_action({"action": kind, **{name: value for name, value in fields.items() if value is not None}})


def known_place(point: Point | None, what: str) -> Point:
    """The point of something that is said without one; Inexpressible where nothing tells it."""
    if point is None:
        raise Inexpressible(f"{what} where the pointer happens to be", "an action")
    return point


class Fields:
    """The named values of one foreign action, its points in a space."""

    def __init__(self, vocabulary: str, kind: object, values: Mapping[str, Any], space: Space) -> None:
        self.name = f"{vocabulary} {str(kind)[:40]}"
        self.space = space
        self._values = values

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise ActionError(f"{self.name}: {name} must be a text, not {_kind(value)}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._values.get(name)
        return default if value is None and default is not None else self._as_number(name, value)

    def whole(self, name: str, default: int | None = None) -> int:
        return math.floor(self.number(name, default))

    def flag(self, name: str) -> bool:
        value = self._values.get(name, False)
        if not isinstance(value, bool):
            raise ActionError(f"{self.name}: {name} must be true or false, not {_kind(value)}")
        return value

    def texts(self, name: str) -> list[str]:
        value = self._values.get(name)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise ActionError(f"{self.name}: {name} must be a list of texts, at least one")
        return value

    def point(self, x: str = "x", y: str = "y") -> Point:
        return self.space.to_relative(self.number(x), self.number(y))

    def pair(self, name: str) -> Point:
        """A point that is a list of two numbers."""
        value = self._values.get(name)
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise ActionError(f"{self.name}: {name} must be a list of two numbers")
        return self.space.to_relative(self._as_number(name, value[0]), self._as_number(name, value[1]))

    def keys(self, names: Sequence[str]) -> str:
        """Keys pressed together, in our spelling."""
        try:
            return join_keys(names)
        except ValueError as error:
            raise ActionError(f"{self.name}: {error}") from None

    def _as_number(self, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ActionError(f"{self.name}: {name} must be a number, not {_kind(value)}")
        if not -1e9 < value < 1e9:  # false for what is not a number, too
            raise ActionError(f"{self.name}: {name} is out of any range")
        return value


def as_object(vocabulary: str, value: object) -> dict[str, Any]:
    """A value that must be an object with texts as keys."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ActionError(f"{vocabulary}: an action is an object, not {_kind(value)}")
    return value


def as_objects(vocabulary: str, value: object) -> list[dict[str, Any]]:
    """A value that must be a list of such objects."""
    if not isinstance(value, list):
        raise ActionError(f"{vocabulary}: the actions of a step are a list, not {_kind(value)}")
    return [as_object(vocabulary, item) for item in value]


# ---- points, keys and scrolls ----


def to_xy(x: int, y: int, space: Space) -> dict[str, int]:
    """A point of ours as fields."""
    return dict(zip("xy", space.from_relative(x, y), strict=True))


def to_pair(x: int, y: int, space: Space) -> list[int]:
    """A point of ours as a list."""
    return list(space.from_relative(x, y))


def lower_names(keys: str, meta: str) -> list[str]:
    """The names of keys pressed together in lower case, with the words of desktop automation for some."""
    names = split_keys(keys)
    special = {"Control": "ctrl", "Meta": meta, "Escape": "esc"}
    found = [special.get(name, name.removeprefix("Arrow")) for name in names]
    return [name.lower() if name.isascii() and (len(names) > 1 or len(name) > 1) else name for name in found]


def scroll_point(action: a.Scroll) -> Point:
    return (action.x, action.y) if action.x is not None and action.y is not None else MIDDLE


def off_middle(point: Point, space: Space) -> Point | None:
    """The point of a scroll, or None for the middle of the image, where a scroll without a point is."""
    # The middle as it looks after a visit to the space.
    return None if point == space.to_relative(*space.from_relative(*MIDDLE)) else point


def to_turns(action: a.Scroll) -> int:
    return max(1, round(action.amount / PERCENT_PER_TURN))


def from_turns(turns: int) -> int:
    """The amount of a scroll by some turns of the wheel."""
    return max(1, min(turns * PERCENT_PER_TURN, 1000))


def to_scroll_pixels(action: a.Scroll, space: Space) -> tuple[int, int]:
    """How far a scroll goes to the right and down, in pixels of the image."""
    horizontal = action.direction in ("left", "right")
    distance = max(1, round(action.amount * (space.width if horizontal else space.height) / 100))
    signed = distance if action.direction in ("right", "down") else -distance
    return (signed, 0) if horizontal else (0, signed)


def from_scroll_pixels(right: float, down: float, space: Space, at: Point | None) -> list[Action]:
    """A scroll by pixels as one or two of ours; by nothing, a look."""
    found = []
    for distance, side, forward, backward in (
        (right, space.width, "right", "left"),
        (down, space.height, "down", "up"),
    ):
        if distance:
            amount = max(1, min(round(abs(distance) * 100 / side), 1000))
            found.append(build("scroll", at, direction=forward if distance > 0 else backward, amount=amount))
    return found or [build("wait", seconds=0)]


def _kind(value: object) -> str:
    return "missing" if value is None else type(value).__name__
