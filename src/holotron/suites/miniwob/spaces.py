"""Gymnasium's view of a page: what is observed, what can be done."""

from __future__ import annotations

import io
import string
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from PIL import Image

from holotron.suites.miniwob.actions import Click, Drag, Move, Press, Primitive, Scroll, TypeText, Wait
from holotron.suites.miniwob.observation import MiniWoBObservation
from holotron.suites.miniwob.tasks import HEIGHT, WIDTH

TYPED = string.ascii_letters + string.digits + string.punctuation + " "
SHOWN = TYPED + "Öé♥プヘル取定消确"  # one task writes its instruction in three scripts
LONGEST_UTTERANCE = 512
LONGEST_TEXT = 64
SCROLL_PIXELS = 50

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


def to_primitive(action: Mapping[str, Any]) -> Primitive:
    x, y = (int(value) for value in action["at"])
    match KINDS[int(action["kind"])]:
        case "click":
            return Click(x, y)
        case "double_click":
            return Click(x, y, count=2)
        case "right_click":
            return Click(x, y, button="right")
        case "move":
            return Move(x, y)
        case "drag":
            return Drag(((x, y), (int(action["to"][0]), int(action["to"][1]))))
        case "type":
            return TypeText(action["text"])
        case "press":
            return Press(KEYS[int(action["key"])])
        case "scroll_down":
            return Scroll(x, y, SCROLL_PIXELS)
        case "scroll_up":
            return Scroll(x, y, -SCROLL_PIXELS)
    return Wait()


def to_arrays(observation: MiniWoBObservation) -> dict[str, Any]:
    with Image.open(io.BytesIO(observation.png)) as image:
        pixels = np.asarray(image.convert("RGB"))
    return {"screenshot": pixels, "utterance": observation.utterance[:LONGEST_UTTERANCE]}
