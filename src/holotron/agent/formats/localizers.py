"""How each family is asked where an element is: from its description and a screenshot to a point."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from copy import copy
from typing import Any, ClassVar

from holotron.actions.action import ActionError
from holotron.actions.coordinates import SCALE, Probe, Space
from holotron.agent.chat import ChatOptions, Message
from holotron.agent.formats.base import PolicyFormat, Size, load_object, with_points, without_thinking
from holotron.agent.formats.holo import Holo1Format, Holo2Format, Holo15Format
from holotron.agent.formats.plain import JsonFormat
from holotron.agent.formats.qwen_vl import Qwen25VLFormat, QwenVLFormat
from holotron.agent.formats.texts import tightened
from holotron.agent.formats.ui_tars import UITarsFormat
from holotron.agent.prompts import POINT_SCHEMA, localization_prompt

_CLICK = re.compile(r"Click\((-?\d+(?:\.\d+)?),\s*(-?\d+(?:\.\d+)?)\)")
_ANY_POINT = re.compile(r"\(?(-?\d+(?:\.\d+)?)[,\s]+(-?\d+(?:\.\d+)?)\)?")


class NotThere(ActionError):
    """The answer says that the element is not there: both coordinates are negative."""


class Localizer(ABC):
    """`like`: the policy format of the same family, whose points and pictures these are."""

    like: ClassVar[PolicyFormat]

    def options(self, max_tokens: int = 128) -> ChatOptions:
        """How a model of this family is talked to."""
        return ChatOptions(max_tokens, template=self.like.template)

    @abstractmethod
    def messages(self, element: str, image: bytes, size: Size) -> list[Message]: ...

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The form of an answer, as a PolicyFormat gives it."""

    @abstractmethod
    def parse(self, text: str, size: Size) -> tuple[int, int]:
        """The point in 0–1000; ActionError if the answer is none, NotThere if it says that there is none."""

    def shares(self, text: str, size: Size) -> tuple[float, float]:
        """The point as shares of the picture's sides, as exact as the answer; ActionError if it is none."""
        probes: list[Probe] = []

        def probe(space: Space) -> Probe:
            probes.append(Probe(space.kind, space.width, space.height))
            return probes[-1]

        exact = copy(self)
        exact.like = with_points(self.like, probe)  # type: ignore[misc]
        exact.parse(text, size)
        asked = next(each for each in reversed(probes) if each.points)
        (x, y), sides = asked.points[-1], (asked.width, asked.height)
        return (x / SCALE, y / SCALE) if asked.kind == "relative" else (x / sides[0], y / sides[1])

    def _point(self, x: object, y: object, size: Size, text: str) -> tuple[int, int]:
        if isinstance(x, int | float) and isinstance(y, int | float):
            if x >= 0 and y >= 0:
                return self.like.points(size).to_relative(x, y)
            if x < 0 and y < 0:
                raise NotThere(f"the answer says that the element is not there: {text[:80]!r}")
        raise ActionError(f"the answer is no point: {text[:80]!r}")


class JsonLocalizer(Localizer):
    """Any chat model under our grammar."""

    like: ClassVar[PolicyFormat] = JsonFormat()

    def messages(self, element: str, image: bytes, size: Size) -> list[Message]:
        return [Message("user", localization_prompt(element), image)]

    def schema(self) -> dict[str, Any]:
        return POINT_SCHEMA

    def parse(self, text: str, size: Size) -> tuple[int, int]:
        value = load_object(text)
        return self._point(value.get("x"), value.get("y"), size, text)


class Holo1Localizer(Localizer):
    """`Click(352, 348)` in pixels of the resized image."""

    like = Holo1Format()

    def messages(self, element: str, image: bytes, size: Size) -> list[Message]:
        words = (
            "Localize an element on the GUI image according to my instructions \n"
            "and output a click position as Click(x, y) with x num pixels from \n"
            "the left edge and y num pixels from the top edge.\n"
        )
        return [Message("user", f"{words}\n{element}", self.like.shown(image))]

    def schema(self) -> dict[str, Any]:
        return {"lark": 'start: "Click(" NUMBER ", " NUMBER ")"\nNUMBER: /[0-9]{1,5}/\n'}

    def parse(self, text: str, size: Size) -> tuple[int, int]:
        found = _CLICK.search(text)
        if found is None:
            raise ActionError(f"the answer is no Click(x, y): {text[:80]!r}")
        return self._point(float(found[1]), float(found[2]), size, text)


class Holo15Localizer(JsonLocalizer):
    """JSON with the action `click_absolute`, in pixels of the resized image."""

    like: ClassVar[PolicyFormat] = Holo15Format()

    def messages(self, element: str, image: bytes, size: Size) -> list[Message]:
        words = (
            "Localize an element on the GUI image according to the provided target and output a click position.\n"
            f"     * You must output a valid JSON following the format: {self._published()}\n"
            "     Your target is:"
        )
        return [Message("user", f"{words}\n{element}", self.like.shown(image))]

    def schema(self) -> dict[str, Any]:
        schema = tightened(self._published())
        return schema | {"required": list(schema["properties"])}

    def _published(self) -> dict[str, Any]:
        tag = {"const": "click_absolute", "default": "click_absolute", "title": "Action", "type": "string"}
        sides = {"x": "left", "y": "top"}
        axes = {
            axis: {
                "description": f"The {axis} coordinate, number of pixels from the {side} edge.",
                "title": axis.upper(),
                "type": "integer",
            }
            for axis, side in sides.items()
        }
        return {
            "description": "Click at absolute coordinates.",
            "properties": {"action": tag, **axes},
            "required": ["x", "y"],
            "title": "ClickAbsoluteAction",
            "type": "object",
        }


class Holo2Localizer(Holo15Localizer):
    """JSON `{"x", "y"}` in 0–1000."""

    like = Holo2Format()

    def _published(self) -> dict[str, Any]:
        axes = {
            axis: {
                "description": f"The {axis} coordinate, normalized between 0 and 1000.",
                "maximum": 1000,
                "minimum": 0,
                "title": axis.upper(),
                "type": "integer",
            }
            for axis in "xy"
        }
        return {"properties": axes, "required": ["x", "y"], "title": "ClickCoordinates", "type": "object"}


class QwenVLLocalizer(Localizer):
    """A click of the `computer_use` tool."""

    like: ClassVar[QwenVLFormat] = QwenVLFormat(kinds=("click",))

    def messages(self, element: str, image: bytes, size: Size) -> list[Message]:
        return [Message("system", self.like.system(size)), Message("user", element, image)]

    def schema(self) -> dict[str, Any]:
        return self.like.schema()

    def parse(self, text: str, size: Size) -> tuple[int, int]:
        action = self.like.parse(text, size).action
        x, y = getattr(action, "x", None), getattr(action, "y", None)
        if x is None or y is None:
            raise ActionError(f"the answer is no point but {action.action}")
        return x, y


class Qwen25VLLocalizer(QwenVLLocalizer):
    like = Qwen25VLFormat(kinds=("click",))


class UITarsLocalizer(Localizer):
    """`Action: click(point='<point>x y</point>')`, or the bare point that the models often give."""

    like = UITarsFormat(kinds=("click",))

    def messages(self, element: str, image: bytes, size: Size) -> list[Message]:
        words = (
            "You are a GUI agent. You are given a task and your action history, with screenshots. You need to perform "
            "the next action to complete the task. \n\n## Output Format\n\nAction: ...\n\n\n## Action Space\n"
            "click(point='<point>x1 y1</point>'')\n\n## User Instruction\n"
        )
        return [Message("user", words + element, image)]

    def schema(self) -> dict[str, Any]:
        call = '"Action: click(point=\'<point>" NUMBER " " NUMBER "</point>\')"'
        return {"lark": f"start: {call}\nNUMBER: /[0-9]{{1,5}}/\n"}

    def parse(self, text: str, size: Size) -> tuple[int, int]:
        found = _ANY_POINT.search(without_thinking(text))
        if found is None:
            raise ActionError(f"the answer is no point: {text[:80]!r}")
        return self._point(float(found[1]), float(found[2]), size, text)


LOCALIZERS: dict[str, Localizer] = {
    made.like.name: made
    for made in (
        JsonLocalizer(),
        Holo1Localizer(),
        Holo15Localizer(),
        Holo2Localizer(),
        QwenVLLocalizer(),
        Qwen25VLLocalizer(),
        UITarsLocalizer(),
    )
}
