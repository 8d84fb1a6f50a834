"""Which libraries there are, and where they lie once they were fetched."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

VARIABLE = "HOLOTRON_LIBRARIES"
DEFAULT_FOLDER = Path("~/.cache/holotron/libraries")
HERE = Path(__file__).parent
# What stands in quotes or in url() is no selector.
SELECTORS = re.compile(r"""(url\((?:"[^"]*"|'[^']*'|[^)]*)\)|"[^"]*"|'[^']*'|/\*.*?\*/)|\.(?=-?[a-zA-Z_])""", re.DOTALL)
ELSEWHERE = re.compile(r"@import[^;]*;|@font-face\s*\{[^}]*\}|@charset[^;]*;")


class LibrariesMissing(Exception):
    """Libraries are needed that were not fetched."""


@dataclass(frozen=True)
class Library:
    """A published library as manifest.toml has it. Paths are those in its package."""

    name: str
    registry: str
    package: str
    version: str
    licence: str
    held_out: bool = False
    sheet: str = ""
    look: str = ""
    on: tuple[tuple[str, str], ...] = ()
    pages: tuple[str, ...] = ()
    fragments: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where it lies. What has one package in common has one folder."""
        return fetched() / f"{self.registry}-{re.sub(r'[^a-zA-Z0-9.]+', '-', self.package).strip('-').lower()}"


@cache
def all_libraries() -> dict[str, Library]:
    manifest = Path(os.environ.get(VARIABLE, "")) / "manifest.toml"  # a folder may have one of its own
    found = tomllib.loads((manifest if manifest.is_file() else HERE / "manifest.toml").read_text(encoding="utf-8"))
    return {
        name: Library(name, **{key: _frozen(value) for key, value in entry.items()}) for name, entry in found.items()
    }


def _frozen(value: Any) -> Any:
    """What can be hashed: lists and tables as tuples."""
    value = list(value.items()) if isinstance(value, dict) else value
    return tuple(value) if isinstance(value, list) else value


def libraries(held_out: bool) -> list[Library]:
    return [library for library in all_libraries().values() if library.held_out == held_out]


def fetched() -> Path:
    """The folder that `holotron data fetch-libraries` fills."""
    return Path(os.environ.get(VARIABLE) or DEFAULT_FOLDER).expanduser().absolute()


def require_libraries() -> None:
    for library in all_libraries().values():
        if not library.folder.is_dir():
            raise LibrariesMissing(
                f"{library.package} is not in {fetched()}; `holotron data fetch-libraries` fetches what "
                f"this needs, and {VARIABLE} names another folder"
            )


@cache
def sheet_of(library: Library, *, prefixed: bool = True) -> str:
    """Its style sheet, without what it would load. prefixed: its classes begin with x-, so that none is one of ours."""
    css = ELSEWHERE.sub("", (library.folder / library.sheet).read_text(encoding="utf-8"))
    return SELECTORS.sub(lambda found: found[1] or ".x-", css) if prefixed else css


@cache
def look_of(library: Library) -> Mapping[str, Any]:
    """By what rules generated pages are dressed in its style sheet."""
    name = library.look or library.name
    own = library.folder / "look.toml"
    path = own if own.is_file() else HERE / "looks" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
