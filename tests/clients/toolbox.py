"""What the client tests share."""

from __future__ import annotations

from typing import Any

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "click",
            "description": "Click at a point.",
            "parameters": {
                "type": "object",
                "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}},
                "required": ["x"],
            },
        },
    }
]


def parts(text: str, picture: str) -> list[Any]:
    return [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": picture}}]
