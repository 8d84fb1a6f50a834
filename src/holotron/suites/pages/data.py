"""The data that templates draw from: words and choices in files beside them."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def read_data(name: str) -> dict[str, Any]:
    """What NAME.toml holds, in the order in which it is written."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))
