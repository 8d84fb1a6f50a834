"""Models that answer as their families do, behind an OpenAI-compatible server without sessions.

Each looks for something red in the picture it is sent, as its own processor would show it to it, and points there in
its own words. What it is asked is kept.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from tests.env.site import Site

Size = tuple[int, int]
DONE = "There is nothing red."


def seen_as_sent(size: Size) -> Size:
    return size


def seen_in_thousandths(size: Size) -> Size:
    return 1000, 1000


def seen_by_qwen25(size: Size, min_pixels: int = 56 * 56) -> Size:
    # Imported here: it takes seconds, which every process of the tests would need to find its tests.
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    height, width = smart_resize(size[1], size[0], factor=28, min_pixels=min_pixels, max_pixels=16384 * 28 * 28)
    return width, height


def seen_by_ui_tars(size: Size) -> Size:
    return seen_by_qwen25(size, min_pixels=100 * 28 * 28)


@dataclass
class Family:
    """seen: the size in which it counts, of a picture of the size it was sent."""

    seen: Callable[[Size], Size]
    click: Callable[[int, int], str]
    done: str
    asked: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, body: dict[str, Any]) -> str:
        self.asked.append(body)
        picture = pictures(body["messages"])[-1]
        pixels = np.asarray(picture.convert("RGB")).astype(int)
        rows, columns = np.nonzero((pixels[:, :, 0] > 200) & (pixels[:, :, 1] < 60) & (pixels[:, :, 2] < 60))
        if not len(rows):
            return self.done
        width, height = self.seen(picture.size)
        x, y = (columns.mean() + 0.5) * width / picture.width, (rows.mean() + 0.5) * height / picture.height
        return self.click(int(x), int(y))

    def serve(self) -> Site:
        def complete() -> str:
            text = self.answer(json.loads(site.bodies[-1]))
            return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})

        models = json.dumps({"data": [{"id": "family"}]})
        site = Site({"/v1/models": models, "/v1/chat/completions": complete})
        return site


def pictures(messages: list[dict[str, Any]]) -> list[Image.Image]:
    found = []
    for message in messages:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image_url":
                data = part["image_url"]["url"].partition("base64,")[2]
                found.append(Image.open(io.BytesIO(base64.b64decode(data))))
    return found


def rendered(messages: list[dict[str, Any]]) -> list[str]:
    """The messages as a chat template writes them: role, then the parts one after another."""
    return [
        f"{message['role']}: "
        + (
            message["content"]
            if isinstance(message["content"], str)
            else "".join(part.get("text", "‹image›") for part in message["content"])
        )
        for message in messages
    ]


def holo_click(x: int, y: int) -> str:
    action = {"action": "click_element", "element": "the red box", "x": x, "y": y}
    return json.dumps({"note": "", "thought": "It is red.", "action": action})


def holotron_click(x: int, y: int) -> str:
    call = {"tool_name": "click_desktop", "element": "the red box", "x": x, "y": y}
    return "<think>\nRed it is.\n</think>\n" + json.dumps({"note": None, "thought": "It is red.", "tool_call": call})


def qwen_call(sentence: str, **arguments: Any) -> str:
    call = json.dumps({"name": "computer_use", "arguments": arguments})
    return f"Action: {sentence}\n<tool_call>\n{call}\n</tool_call>"


def qwen_click(x: int, y: int) -> str:
    return qwen_call("Click the red box.", action="left_click", coordinate=[x, y])


HOLO_DONE = json.dumps({"note": "", "thought": "", "action": {"action": "answer", "content": DONE}})
HOLOTRON_DONE = json.dumps({"note": None, "thought": "", "tool_call": {"tool_name": "answer", "content": DONE}})
QWEN_DONE = qwen_call("Tell it.", action="answer", text=DONE)


def family(name: str) -> Family:
    if name.startswith("holo1"):
        return Family(seen_as_sent, holo_click, HOLO_DONE)
    if name == "holo2":
        return Family(seen_in_thousandths, holo_click, HOLO_DONE)
    if name == "holotron":
        return Family(seen_in_thousandths, holotron_click, HOLOTRON_DONE)
    if name == "ui-tars":
        done = f"Thought: None.\nAction: finished(content='{DONE}')"
        return Family(seen_by_ui_tars, lambda x, y: f"Thought: Red.\nAction: click(start_box='({x},{y})')", done)
    if name == "qwen-vl":
        return Family(seen_in_thousandths, qwen_click, QWEN_DONE)
    return Family(seen_by_qwen25, qwen_click, QWEN_DONE)
