"""What can be done to a page: mouse and keys, in pixels of the 160×210 area."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from holotron.suites.miniwob.errors import MiniWoBError

Button = Literal["left", "right", "middle"]


@dataclass(frozen=True)
class Click:
    """`count` presses of a button at a point: 2 is a double click."""

    x: float
    y: float
    button: Button = "left"
    count: int = 1


@dataclass(frozen=True)
class Move:
    x: float
    y: float


@dataclass(frozen=True)
class Drag:
    """Press at the first point, move through the others in `steps` small moves each, let go at the last."""

    points: tuple[tuple[float, float], ...]
    steps: int = 5


@dataclass(frozen=True)
class TypeText:
    text: str


@dataclass(frozen=True)
class Press:
    """A key or a combination by the names of the DOM, joined by +: `Enter`, `ArrowDown`, `Control+a`."""

    keys: str


@dataclass(frozen=True)
class Scroll:
    """Turn the wheel at a point; positive `dy` shows what is below."""

    x: float
    y: float
    dy: float
    dx: float = 0.0


@dataclass(frozen=True)
class Wait:
    """Do nothing for a while."""

    seconds: float = 0.0


Primitive = Click | Move | Drag | TypeText | Press | Scroll | Wait
KINDS: dict[str, type[Any]] = {
    "click": Click,
    "move": Move,
    "drag": Drag,
    "type": TypeText,
    "press": Press,
    "scroll": Scroll,
    "wait": Wait,
}
_NAMES = {kind: name for name, kind in KINDS.items()}
assert set(KINDS.values()) == set(get_args(Primitive))


def to_json(action: Primitive) -> dict[str, Any]:
    """A plain dictionary with the kind under `do`."""
    return {"do": _NAMES[type(action)], **asdict(action)}


def from_json(data: Mapping[str, Any]) -> Primitive:
    """What `to_json` wrote. Unknown kinds and unknown or missing fields are errors."""
    given = dict(data)
    kind = KINDS.get(name := given.pop("do", None))
    if kind is None:
        raise MiniWoBError(f"unknown primitive {name!r}; known are {', '.join(KINDS)}")
    if unknown := given.keys() - {field.name for field in fields(kind)}:
        raise MiniWoBError(f"primitive {name!r} has no field {', '.join(sorted(unknown))}")
    if "points" in given:
        given["points"] = tuple((point[0], point[1]) for point in given["points"])
    try:
        action: Primitive = kind(**given)
    except TypeError as error:
        raise MiniWoBError(f"primitive {name!r}: {error}") from None
    return action
