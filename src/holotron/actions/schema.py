"""The JSON schema of actions, for decoding under a grammar: every text it allows is a valid action."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from typing import Any

from holotron.actions.action import KINDS, MODELS
from holotron.actions.keys import KEYS_PATTERN


def action_schema(kinds: Iterable[str] | None = None) -> dict[str, Any]:
    """A schema with one object per kind of action, of all kinds or of some, without references.

    It allows a little less than parse_action accepts: keys in their own spelling, whole seconds.
    """
    chosen = list(KINDS) if kinds is None else list(dict.fromkeys(kinds))
    unknown = [kind for kind in chosen if kind not in MODELS]
    if unknown or not chosen:
        what = f"there is no action {unknown[0]!r}" if unknown else "a schema needs at least one action"
        raise ValueError(f"{what}; choose from {', '.join(KINDS)}")
    variants = [deepcopy(variant) for kind in KINDS if kind in chosen for variant in _variants(kind)]
    return variants[0] if len(variants) == 1 else {"anyOf": variants}


@cache
def _variants(kind: str) -> list[dict[str, Any]]:
    """The schema of one action; two where some fields come together or not at all."""
    model = MODELS[kind]
    described = model.model_json_schema()
    properties = {name: _rule(name, rule) for name, rule in described["properties"].items()}
    properties["action"] = {"const": kind}
    required = [name for name in properties if name == "action" or name in described.get("required", ())]
    if not model.together:
        return [_object(properties, required)]
    without = {name: rule for name, rule in properties.items() if name not in model.together}
    ordered = [name for name in properties if name in required or name in model.together]
    return [_object(without, required), _object(properties, ordered)]


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _rule(name: str, rule: dict[str, Any]) -> dict[str, Any]:
    rule = next((choice for choice in rule.get("anyOf", ()) if choice.get("type") != "null"), rule)
    if name == "keys":
        return {"type": "string", "pattern": KEYS_PATTERN}
    kept: dict[str, Any] = {
        key: rule[key] for key in ("type", "enum", "minimum", "maximum", "maxLength", "pattern") if key in rule
    }
    if kept.get("type") == "number":
        # A model could write digits behind the point for ever.
        kept |= {"type": "integer", "minimum": int(kept["minimum"]), "maximum": int(kept["maximum"])}
    return kept
