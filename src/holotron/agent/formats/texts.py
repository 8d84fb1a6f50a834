"""The words of published contracts, kept to the letter in files beside this one."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@cache
def contract_text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def contract_json(name: str) -> dict[str, Any]:
    """A fresh copy, which the caller may change."""
    return json.loads(contract_text(name))


def filled(name: str, **values: str) -> str:
    """The text with {value} in place of each `{name}`; other braces are text."""
    text = contract_text(name)
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def tightened(schema: dict[str, Any]) -> dict[str, Any]:
    """A published schema as a grammar: nothing beside what is named, and numbers and texts that come to an end."""
    found = {key: _tightened(value) for key, value in schema.items()}
    if found.get("type") == "object" and "properties" in found:
        found.setdefault("additionalProperties", False)
    if found.get("type") == "integer":
        found = {"minimum": 0, "maximum": 100_000} | found
    if found.get("type") == "string" and "const" not in found and "enum" not in found:
        found.setdefault("maxLength", 4000)
    return {key: value for key, value in found.items() if key not in ("title", "description", "default")}


def _tightened(value: Any) -> Any:
    if isinstance(value, dict):
        # The values of properties and definitions are schemas, whatever their names.
        return (
            {key: tightened(item) if isinstance(item, dict) else item for key, item in value.items()}
            if not (value.keys() & {"type", "anyOf", "$ref", "const"})
            else tightened(value)
        )
    return [_tightened(item) for item in value] if isinstance(value, list) else value
