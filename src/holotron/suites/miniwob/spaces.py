"""Gymnasium's view of a page: what is observed, what can be done."""

from __future__ import annotations

import io
import string
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from PIL import Image

from holotron.actions.action import Action, Click, DoubleClick, Drag, Hover, Press, Scroll, Type, Wait
from holotron.env.environment import Observation
from holotron.suites.miniwob.environment import SPACE
from holotron.suites.miniwob.tasks import HEIGHT, WIDTH

TYPED = string.ascii_letters + string.digits + string.punctuation + " "
SHOWN = TYPED + "Öé♥プヘル取定消确"  # one task writes its instruction in three scripts
LONGEST_UTTERANCE = 512
LONGEST_TEXT = 64
SCROLL_PERCENT = 24  # of the height: about 50 pixels

KINDS = ("click", "double_click", "right_click", "move", "drag", "type", "press", "scroll_down", "scroll_up", "wait")
KEYS = (
    *("Enter", "Tab", "Escape", "Backspace", "Delete", "Space", "Home", "End", "PageUp", "PageDown"),
    *("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"),
    *("Control+a", "Control+c", "Control+x", "Control+v", "Shift+Tab", "Control+Home", "Control+End"),
)


def observation_space() -> spaces.Dict:
    return spaces.Dict(
        {
            "screenshot": spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8),
            "utterance": spaces.Text(LONGEST_UTTERANCE, min_length=0, charset=SHOWN),
        }
    )


def action_space() -> spaces.Dict:
    """`kind` is an index into KINDS; of the rest each kind uses what it needs: `at` and `to` are pixels, `key` an index
    into KEYS, `text` what `type` types."""
    return spaces.Dict(
        {
            "kind": spaces.Discrete(len(KINDS)),
            "at": spaces.MultiDiscrete([WIDTH, HEIGHT]),
            "to": spaces.MultiDiscrete([WIDTH, HEIGHT]),
            "key": spaces.Discrete(len(KEYS)),
            "text": spaces.Text(LONGEST_TEXT, min_length=0, charset=TYPED),
        }
    )


def to_action(given: Mapping[str, Any]) -> Action:
    """The action that an element of `action_space` stands for."""
    x, y = SPACE.to_relative(*given["at"])
    kind = KINDS[int(given["kind"])]
    match kind:
        case "click":
            return Click(x=x, y=y)
        case "double_click":
            return DoubleClick(x=x, y=y)
        case "right_click":
            return Click(x=x, y=y, button="right")
        case "move":
            return Hover(x=x, y=y)
        case "drag":
            to_x, to_y = SPACE.to_relative(*given["to"])
            return Drag(x=x, y=y, to_x=to_x, to_y=to_y)
        case "type":
            return Type(text=given["text"])
        case "press":
            return Press(keys=KEYS[int(given["key"])])
        case "scroll_down" | "scroll_up":
            return Scroll(direction="down" if kind == "scroll_down" else "up", amount=SCROLL_PERCENT, x=x, y=y)
    return Wait(seconds=0)


def to_arrays(observation: Observation, instruction: str) -> dict[str, Any]:
    with Image.open(io.BytesIO(observation.image)) as image:
        pixels = np.asarray(image.convert("RGB"))
    return {"screenshot": pixels, "utterance": instruction[:LONGEST_UTTERANCE]}
