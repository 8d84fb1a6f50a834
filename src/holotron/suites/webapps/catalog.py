"""Which applications a folder holds and which tasks they have, as WebArena-Infinity lays them out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holotron.suites.suite import SuiteError

SERVER = "server.py"
SPLITS = ("real", "function")


@dataclass(frozen=True)
class AppTask:
    """A task of an application. difficulty: easy, medium or hard; empty where the application does not say.

    verifier: a Python file whose `verify(address)` says whether the state that the server holds is what was asked for.
    """

    app: Path
    split: str
    id: str
    instruction: str
    verifier: Path
    difficulty: str = ""

    @property
    def name(self) -> str:
        return f"{self.app.name}/{self.split}/{self.id}"


def read_tasks_of(root: Path, apps: Sequence[str] = ()) -> dict[str, AppTask]:
    """The tasks of the named applications below a folder, or of all, by name; SuiteError where they cannot be read."""
    folder = root / "apps" if (root / "apps").is_dir() else root
    known = sorted(path.parent for path in folder.glob(f"*/{SERVER}"))
    if not known:
        raise SuiteError(f"{root} holds no applications; each is a folder with a {SERVER}, in it or in its apps/")
    for name in apps:
        if name not in (app.name for app in known):
            there = ", ".join(app.name for app in known)
            raise SuiteError(f"there is no application {name!r} in {folder}; there are {there}")
    found: dict[str, AppTask] = {}
    for app in known:
        if not apps or app.name in apps:
            for task in _tasks_of(app):
                if task.name in found:
                    raise SuiteError(f"{app / _file(task.split)} has two tasks with the id {task.id!r}")
                found[task.name] = task
    return found


def _file(split: str) -> str:
    return f"{split}-tasks.json"


def _tasks_of(app: Path) -> Iterator[AppTask]:
    files = {split: app / _file(split) for split in SPLITS if (app / _file(split)).is_file()}
    if not files:
        raise SuiteError(f"{app} has no tasks: {' and '.join(map(_file, SPLITS))} are missing")
    for split, path in files.items():
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SuiteError(f"{path} cannot be read: {error}") from error
        if not isinstance(entries, list):
            raise SuiteError(f"{path} is no list of tasks")
        for number, entry in enumerate(entries):
            try:
                yield _task(app, split, entry)
            except ValueError as error:
                raise SuiteError(f"{path}, entry {number}: {error}") from error


def _task(app: Path, split: str, entry: Any) -> AppTask:
    if not isinstance(entry, dict):
        raise ValueError("it is no object")
    for field in ("id", "instruction", "verify"):
        if not isinstance(entry.get(field), str) or not entry[field].strip():
            raise ValueError(f"its {field!r} is {entry.get(field)!r}; it must be a text")
    difficulty = entry.get("difficulty") or ""
    if not isinstance(difficulty, str):
        raise ValueError(f"its 'difficulty' is {difficulty!r}; it must be a text")
    verifier = app / entry["verify"]
    if not verifier.resolve().is_relative_to(app.resolve()) or not verifier.is_file():
        raise ValueError(f"its verifier {entry['verify']!r} is no file of the application")
    return AppTask(app, split, entry["id"], entry["instruction"], verifier, difficulty)
