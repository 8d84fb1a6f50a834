"""Words, names and sentences that generated pages and screens are filled with, as words.toml has them.

FIRST_NAMES are its `first_names`, and so with all of them.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

PASSWORD_LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789"
_LISTS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def __getattr__(name: str) -> tuple[str, ...]:
    """In a text entries are separated by blanks; a + stands for a blank within one."""
    if (entries := _LISTS.get(name.lower() if name.isupper() else "")) is None:
        raise AttributeError(f"words.toml has no list {name.lower()}")
    return tuple(entry.replace("+", " ") for entry in entries.split()) if isinstance(entries, str) else tuple(entries)
