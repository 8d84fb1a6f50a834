"""Reading values out of what others wrote, without trusting it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from holotron.actions.action import Action, ActionError, Scroll, parse_action
from holotron.actions.space import Space

MIDDLE = (500, 500)


class Inexpressible(ActionError):
    """One vocabulary has no words for what was said in the other."""

    def __init__(self, what: str, vocabulary: str) -> None:
        super().__init__(f"{vocabulary} cannot express {what}")


def build(kind: str, **fields: Any) -> Action:
    """An action of ours from values that may be wrong; a field that is None is left out."""
    return parse_action({"action": kind, **{name: value for name, value in fields.items() if value is not None}})


class Fields:
    """The named values of one foreign action."""

    def __init__(self, vocabulary: str, kind: str, values: Mapping[str, Any]) -> None:
        self.name = f"{vocabulary} {kind}"
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
        if value is None and default is not None:
            return default
        return self.as_number(name, value)

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

    def point(self, space: Space, x: str = "x", y: str = "y") -> tuple[int, int]:
        return space.to_relative(self.number(x), self.number(y))

    def pair(self, space: Space, name: str) -> tuple[int, int]:
        """A point that is a list of two numbers."""
        value = self._values.get(name)
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise ActionError(f"{self.name}: {name} must be a list of two numbers")
        return space.to_relative(self.as_number(name, value[0]), self.as_number(name, value[1]))

    def as_number(self, name: str, value: object) -> float:
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


# ---- scrolling by pixels ----


def scroll_pixels(action: Scroll, space: Space) -> tuple[int, int]:
    """How far a scroll goes to the right and down, in pixels of the image."""
    horizontal = action.direction in ("left", "right")
    distance = max(1, round(action.amount * (space.width if horizontal else space.height) / 100))
    signed = distance if action.direction in ("right", "down") else -distance
    return (signed, 0) if horizontal else (0, signed)


def scrolls(right: float, down: float, space: Space, point: tuple[int, int] | None) -> list[Action]:
    """A scroll by pixels as one or two of ours; by nothing, a look. The middle is where a scroll is without a point."""
    x, y = point if point is not None and point != space_middle(space) else (None, None)
    found = []
    for distance, side, forward, backward in (
        (right, space.width, "right", "left"),
        (down, space.height, "down", "up"),
    ):
        if distance:
            amount = max(1, min(round(abs(distance) * 100 / side), 1000))
            found.append(build("scroll", direction=forward if distance > 0 else backward, amount=amount, x=x, y=y))
    return found or [build("wait", seconds=0)]


def space_middle(space: Space) -> tuple[int, int]:
    """The middle of the image as it looks after a visit to the space."""
    return space.to_relative(*space.from_relative(*MIDDLE))


def _kind(value: object) -> str:
    return "missing" if value is None else type(value).__name__
