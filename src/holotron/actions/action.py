"""What a policy may ask for: every action as JSON with the field `action`, points as 0–1000 of each side of the image.

The JSON is canonical: fixed order of keys, no blanks, defaults left out, so that a small model writes few tokens and
equal actions are equal texts.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from holotron.actions.coordinates import SCALE
from holotron.actions.keys import parse_keys

MAX_JSON_CHARS = 100_000
MAX_SHOWN = 60


def _whole_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds half a surrogate pair, which is no text") from error
    return text


Coordinate = Annotated[int, Field(ge=0, le=SCALE)]
Text = Annotated[str, Field(max_length=10_000), AfterValidator(_whole_text)]
ShortText = Annotated[str, Field(max_length=500), AfterValidator(_whole_text)]
Url = Annotated[str, Field(max_length=4000, pattern=r"^[^\x00-\x20\x7f]+$"), AfterValidator(_whole_text)]
Keys = Annotated[str, Field(max_length=100), AfterValidator(_whole_text), AfterValidator(parse_keys)]
Seconds = Annotated[float, Field(ge=0, le=300, allow_inf_nan=False), AfterValidator(lambda seconds: round(seconds, 3))]
TabIndex = Annotated[int, Field(ge=0, le=99)]
Direction = Literal["up", "down", "left", "right"]
Button = Literal["left", "right", "middle"]


class _Action(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    action: str
    # Optional fields of which there is either all or nothing.
    together: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _check_together(self) -> _Action:
        given = [name for name in self.together if getattr(self, name) is not None]
        if given and len(given) < len(self.together):
            raise ValueError(f"{given[0]} is given alone; give {' and '.join(self.together)} or neither")
        return self


class _AtPoint(_Action):
    x: Coordinate
    y: Coordinate


class Click(_AtPoint):
    """Press and release a mouse button at a point."""

    action: Literal["click"] = "click"
    button: Button = "left"
    element: ShortText = ""


class DoubleClick(_AtPoint):
    """Click twice at a point."""

    action: Literal["double_click"] = "double_click"
    element: ShortText = ""


class Hover(_AtPoint):
    """Move the pointer to a point."""

    action: Literal["hover"] = "hover"
    element: ShortText = ""


class Drag(_AtPoint):
    """Press the left button at one point and release it at another."""

    action: Literal["drag"] = "drag"
    to_x: Coordinate
    to_y: Coordinate


class Type(_Action):
    """Write a text where the focus is, or click a point first. `clear` empties the field before, `enter` submits it."""

    action: Literal["type"] = "type"
    text: Text
    x: Coordinate | None = None
    y: Coordinate | None = None
    clear: bool = False
    enter: bool = False
    element: ShortText = ""
    together: ClassVar[tuple[str, ...]] = ("x", "y")


class Press(_Action):
    """Press a key, or one with modifiers, once or several times."""

    action: Literal["press"] = "press"
    keys: Keys
    repeat: Annotated[int, Field(ge=1, le=100)] = 1


class Scroll(_Action):
    """Turn the wheel; `amount` is in percent of the viewport. Without a point, in the middle of it."""

    action: Literal["scroll"] = "scroll"
    direction: Direction
    amount: Annotated[int, Field(ge=1, le=1000)] = 50
    x: Coordinate | None = None
    y: Coordinate | None = None
    together: ClassVar[tuple[str, ...]] = ("x", "y")


class Select(_AtPoint):
    """Choose an option, by its label, of the list at a point."""

    action: Literal["select"] = "select"
    option: ShortText


class Goto(_Action):
    """Open an address in this tab."""

    action: Literal["goto"] = "goto"
    url: Url


class Back(_Action):
    """Go back to the page before."""

    action: Literal["back"] = "back"


class Forward(_Action):
    """Go forward to the page after."""

    action: Literal["forward"] = "forward"


class Refresh(_Action):
    """Load this page again."""

    action: Literal["refresh"] = "refresh"


class Wait(_Action):
    """Do nothing for a while; 0 only looks again."""

    action: Literal["wait"] = "wait"
    seconds: Seconds


class NewTab(_Action):
    """Open a tab and go to it."""

    action: Literal["new_tab"] = "new_tab"
    url: Url | None = None


class SwitchTab(_Action):
    """Go to a tab, counted from 0."""

    action: Literal["switch_tab"] = "switch_tab"
    index: TabIndex


class CloseTab(_Action):
    """Close a tab, counted from 0, or this one."""

    action: Literal["close_tab"] = "close_tab"
    index: TabIndex | None = None


class Answer(_Action):
    """The task is done, and this is the answer to it."""

    action: Literal["answer"] = "answer"
    text: Text


class Infeasible(_Action):
    """The task cannot be done."""

    action: Literal["infeasible"] = "infeasible"
    reason: Text


Action = (
    Click | DoubleClick | Hover | Drag | Type | Press | Scroll | Select | Goto | Back | Forward | Refresh | Wait
    | NewTab | SwitchTab | CloseTab | Answer | Infeasible
)  # fmt: skip
MODELS: dict[str, type[_Action]] = {model.model_fields["action"].default: model for model in get_args(Action)}
KINDS: tuple[str, ...] = tuple(MODELS)

_ADAPTER: TypeAdapter[Action] = TypeAdapter(Annotated[Action, Field(discriminator="action")])


class ActionError(ValueError):
    """Not an action: the message names the field, its value and what it may be."""


def parse_action(source: str | dict[str, Any]) -> Action:
    """The action that a JSON text or an already parsed object stands for; anything else is an ActionError."""
    value = load_json(source) if isinstance(source, str) else source
    if not isinstance(value, dict):
        raise ActionError(f"an action is a JSON object with the field action, not {shown(value)}")
    try:
        return _ADAPTER.validate_python(value)
    except ValidationError as error:
        raise ActionError(_explain(value, error)) from None
    except RecursionError:
        raise ActionError("the action is nested too deeply") from None


def load_json(text: str) -> Any:
    """The JSON value of a text that may be anything; ActionError unless it is plain, finite, shallow JSON."""
    if len(text) > MAX_JSON_CHARS:
        raise ActionError(f"the action has {len(text)} characters; {MAX_JSON_CHARS} are the most allowed")
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ActionError("the action is nested too deeply") from None
    except ValueError as error:
        raise ActionError(f"not valid JSON: {str(error)[:200]}; the text is {shown(text)}") from None


def to_dict(action: Action) -> dict[str, Any]:
    """The canonical JSON object of an action: keys in order, defaults left out."""
    fields = action.model_dump(exclude_defaults=True, exclude={"action"})
    if isinstance(action, Wait) and action.seconds.is_integer():
        fields["seconds"] = int(action.seconds)
    return {"action": action.action, **fields}


def to_json(action: Action) -> str:
    """The canonical JSON text of an action."""
    return json.dumps(to_dict(action), ensure_ascii=False, separators=(",", ":"))


def is_terminal(action: Action) -> bool:
    """Whether the episode ends with it."""
    return isinstance(action, Answer | Infeasible)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key is given twice")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)


# ---- errors ----


def _explain(value: dict[Any, Any], error: ValidationError) -> str:
    kind = value.get("action")
    if not isinstance(kind, str) or kind not in MODELS:
        what = f"action is {shown(kind)}" if "action" in value else "the field action is missing"
        return f"{what}; it must be one of {', '.join(KINDS)}"
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = [str(part)[:MAX_SHOWN] for part in first["loc"] if part != kind][:1]
    reason = str(first["msg"]).removeprefix("Value error, ")
    if not place:
        return f"{kind}: {reason}"
    name = place[0]
    if name not in MODELS[kind].model_fields:
        return f"{kind} has no field {shown(name)}; it has {', '.join(MODELS[kind].model_fields)}"
    if first["type"] == "missing":
        return f"{kind}.{name} is missing; it must be {_allowed(kind, name)}"
    if first["type"] == "value_error":
        return f"{kind}.{name} is {shown(value.get(name))}: {reason}"
    return f"{kind}.{name} is {shown(value.get(name))}; it must be {_allowed(kind, name)}"


@cache
def _allowed(kind: str, name: str) -> str:
    """What a field may be, in words, from the schema of its model."""
    rule = MODELS[kind].model_json_schema()["properties"][name]
    rule = next((choice for choice in rule.get("anyOf", [rule]) if choice.get("type") != "null"), rule)
    if "enum" in rule:
        return f"one of {', '.join(rule['enum'])}"
    if rule["type"] == "boolean":
        return "true or false"
    if rule["type"] == "string":
        blanks = " without blanks" if "pattern" in rule else ""
        return f"a text{blanks} of at most {rule['maxLength']} characters"
    number = "a whole number" if rule["type"] == "integer" else "a number"
    return f"{number} from {rule['minimum']:g} to {rule['maximum']:g}"


def shown(value: object) -> str:
    """A value in an error message: short, and safe to print."""
    if isinstance(value, bool | float | None):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**18 else "a huge number"
    if isinstance(value, str):
        short = value if len(value) <= MAX_SHOWN else value[: MAX_SHOWN - 1] + "…"
        return json.dumps(short, ensure_ascii=False).encode(errors="backslashreplace").decode()
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else type(value).__name__
