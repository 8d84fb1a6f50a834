"""The actions themselves, one class each: what there is and which values its fields may have."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from holotron.actions.coordinates import SCALE
from holotron.actions.keys import parse_keys


def _whole_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds half a surrogate pair, which is no text") from error
    return text


def _milliseconds(seconds: float) -> float:
    return round(seconds, 3)


Coordinate = Annotated[int, Field(ge=0, le=SCALE)]
Text = Annotated[str, Field(max_length=10_000), AfterValidator(_whole_text)]
ShortText = Annotated[str, Field(max_length=500), AfterValidator(_whole_text)]
Url = Annotated[str, Field(max_length=4000, pattern=r"^[^\x00-\x20\x7f]+$"), AfterValidator(_whole_text)]
Keys = Annotated[str, Field(max_length=100), AfterValidator(_whole_text), AfterValidator(parse_keys)]
Seconds = Annotated[float, Field(ge=0, le=300, allow_inf_nan=False), AfterValidator(_milliseconds)]
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


class Click(_Action):
    """Press and release a mouse button at a point."""

    action: Literal["click"] = "click"
    x: Coordinate
    y: Coordinate
    button: Button = "left"
    element: ShortText = ""


class DoubleClick(_Action):
    """Click twice at a point."""

    action: Literal["double_click"] = "double_click"
    x: Coordinate
    y: Coordinate
    element: ShortText = ""


class Hover(_Action):
    """Move the pointer to a point."""

    action: Literal["hover"] = "hover"
    x: Coordinate
    y: Coordinate
    element: ShortText = ""


class Drag(_Action):
    """Press the left button at one point and release it at another."""

    action: Literal["drag"] = "drag"
    x: Coordinate
    y: Coordinate
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


class Select(_Action):
    """Choose an option, by its label, of the list at a point."""

    action: Literal["select"] = "select"
    x: Coordinate
    y: Coordinate
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
