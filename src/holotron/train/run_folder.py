"""A run's folder belongs to one recipe: going on with another would be a run of neither."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from holotron.train.recipe import Recipe

RECIPE = "recipe.json"


def begun_recipe(out: Path) -> dict[str, Any]:
    """The recipe of the run in a folder; empty if none was begun."""
    path = out / RECIPE
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return value


def plain_recipe(recipe: Recipe) -> dict[str, Any]:
    """What a run is: without its own folder, which may be moved, and the sinks, which may come and go."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(replace(recipe, folder=Path())), default=str))
    plain.pop("sinks", None)
    return plain


def claim_folder(out: Path, recipe: Recipe) -> list[str]:
    """Write the recipe into the folder, or say in what it differs from the one that is there."""
    plain, before = plain_recipe(recipe), begun_recipe(out)
    if before:
        return sorted(key for key in before | plain if before.get(key) != plain.get(key))
    out.mkdir(parents=True, exist_ok=True)
    (out / RECIPE).write_text(json.dumps(plain, indent=1), encoding="utf-8")
    return []
