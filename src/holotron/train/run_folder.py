"""A run's folder belongs to one recipe: going on with another would be a run of neither."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from holotron.episodes.files import write_whole
from holotron.train.meter import TrainingError
from holotron.train.parallel import Ranks
from holotron.train.recipe import Recipe

RECIPE = "recipe.json"


def begun_recipe(out: Path) -> dict[str, Any]:
    """The recipe of the run in a folder; empty if none was begun."""
    path = out / RECIPE
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return value


def plain_recipe(recipe: Recipe) -> dict[str, Any]:
    """What a run is: without its folder and its engines, which may move, its sinks, which may change, and its time."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(replace(recipe, folder=Path())), default=str))
    for name in ("engines", "engine_seconds") if "rollout" in plain else ():
        del plain["rollout"][name]
    return {key: value for key, value in plain.items() if key not in ("sinks", "seconds")}


def claim_folder(out: Path, recipe: Recipe, ranks: Ranks) -> None:
    """Write the recipe into the folder; TrainingError in all ranks where another is there."""
    if different := ranks.gather(_claim(out, recipe) if ranks.first else [])[0]:
        raise TrainingError(
            f"{out} holds a run of another recipe ({', '.join(different)} differ); choose another --out"
        )


def _claim(out: Path, recipe: Recipe) -> list[str]:
    plain, before = plain_recipe(recipe), begun_recipe(out)
    if before:
        return sorted(key for key in before | plain if before.get(key) != plain.get(key))
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / RECIPE, json.dumps(plain, indent=1).encode(), sync=True)
    return []
