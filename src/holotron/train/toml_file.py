"""TOML files read into frozen dataclasses: unknown keys and wrong types are errors that name the place."""

from __future__ import annotations

import copy
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def read_toml(path: Path, error: type[ValueError]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise error(f"{path} cannot be read: {problem}") from problem


def with_settings(table: dict[str, Any], settings: Sequence[str], error: type[ValueError]) -> dict[str, Any]:
    """The table with values changed, each given as objective.clip_high=0.2: as in TOML, but text needs no quotes."""
    table = copy.deepcopy(table)
    for setting in settings:
        name, equals, text = setting.partition("=")
        *sections, key = name.strip().split(".")
        place: Any = table
        for section in sections:
            place = place.setdefault(section, {}) if isinstance(place, dict) else None
        if not equals or not isinstance(place, dict):
            raise error(f"{setting!r} sets nothing; write it like objective.clip_high=0.2")
        try:
            place[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            place[key] = text
    return table


def build(kind: type[T], value: Any, where: str, error: type[ValueError]) -> T:
    """A dataclass from a table; `error` says what in the table is wrong."""
    if not isinstance(value, Mapping):
        raise error(f"{where} must be a table, not {value!r}")
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(value) - known):
        raise error(f"{where} has the unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
    hints = get_type_hints(kind)
    try:
        return kind(**{name: _convert(hints[name], item, f"{where}: {name}", error) for name, item in value.items()})
    except error:
        raise
    except (TypeError, ValueError) as problem:
        raise error(f"{where}: {problem}") from problem


def _convert(kind: Any, value: Any, where: str, error: type[ValueError]) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return value if isinstance(value, kind) else build(kind, value, where, error)  # type: ignore[arg-type]
    if origin in (typing.Union, types.UnionType):  # a value that may be left out
        [kind] = [each for each in inner if each is not type(None)]
        return _convert(kind, value, where, error)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise error(f"{where} is {value!r}; it must be a list")
        if inner[-1] is not ... and len(value) != len(inner):
            raise error(f"{where} is {value!r}; it must have {len(inner)} values")
        return tuple(_convert(inner[0], item, where, error) for item in value)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise error(f"{where} is {value!r}; it must be a table")
        return {name: _convert(inner[1], item, f"{where}: {name}", error) for name, item in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (int, float, str, bool) and type(value) is not kind:
        raise error(f"{where} is {value!r}; it must be of type {kind.__name__}")
    return value
