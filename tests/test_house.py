"""The house is what docs/architecture.md says: each thing once, imports as drawn, nothing written twice."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "holotron"
MOST_LINES = 77_600
SHARED_RUN = 12


@pytest.fixture(scope="module", autouse=True)
def forgotten_at_the_end() -> Iterator[None]:
    """All modules' trees are so many objects that collecting garbage in later tests would take seconds each time."""
    yield
    modules.cache_clear()
    every_call.cache_clear()


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its path below src/holotron."""
    return {
        str(path.relative_to(SOURCE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


def room(path: str) -> str:
    return path.split("/")[0] if "/" in path else ""


def functions(path: str) -> Iterator[tuple[str, ast.AST]]:
    """The innermost functions of a module with their names."""
    for node in ast.walk(modules()[path]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path}:{node.name}", node


@cache
def every_call() -> set[tuple[str, str, str | None]]:
    """The function that calls, the name it calls, and the name or attribute of which that is a method."""
    found = set()
    for path in modules():
        for name, function in functions(path):
            for node in ast.walk(function):
                target = node.func if isinstance(node, ast.Call) else None
                if isinstance(target, ast.Name):
                    found.add((name, target.id, None))
                if isinstance(target, ast.Attribute):
                    owner = target.value
                    owner_name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", None)
                    found.add((name, target.attr, owner_name))
    return found


def calls(attribute: str, *, of: str | None = None) -> set[str]:
    """Functions that call something of this name, as a function or as a method (of a name or attribute `of`)."""
    return {name for name, called, owner in every_call() if called == attribute and of in (None, owner)}


def matched_classes(function: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.MatchClass):
            names.add(node.cls.attr if isinstance(node.cls, ast.Attribute) else getattr(node.cls, "id", ""))
    return names


def test_one_function_executes_actions() -> None:
    """Outside actions/, which translates and describes them, one function tells actions apart."""
    found = {
        name
        for path in modules()
        if room(path) != "actions"
        for name, function in functions(path)
        if {"Click", "Type", "Scroll"} <= matched_classes(function)
    }
    assert found == {"env/executor.py:execute"}


def test_one_function_launches_browsers() -> None:
    assert len(calls("launch", of="chromium")) == 1


def test_one_function_builds_engines() -> None:
    assert calls("Engine") == {"engine/build.py:build_engine"}


def test_one_module_writes_conversations() -> None:
    """Whoever wants a conversation as tokens goes through the one caller of chat templates."""
    assert {name.split(":")[0] for name in calls("render", of="template")} == {"model/text/conversation.py"}


def test_one_forward() -> None:
    """Every projection of the decoder and the vision tower is applied in one place, which serves and trains."""
    for projection in ("in_proj", "out_proj", "q_proj", "o_proj", "qkv", "fc1"):
        found = calls(projection)
        assert len(found) == 1, (projection, found)
        assert room(found.pop()) == "model"


def test_one_evaluator() -> None:
    """One module computes success rates of tasks."""
    found = {
        path
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        and any(isinstance(key, ast.Constant) and key.value == "success_rate" for key in node.keys)
    }
    assert found == {"eval/evaluate.py"}


def test_no_module_is_too_long_and_the_whole_is_small_enough() -> None:
    lengths = {path: len((SOURCE / path).read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert sum(lengths.values()) <= MOST_LINES
    assert [path for path, length in lengths.items() if length > 500] == []


def test_public_class_names_are_defined_once() -> None:
    homes = defaultdict(list)
    for path, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def plain_lines(path: str) -> list[str]:
    """Lines that say something: no blanks, comments, imports, lone brackets."""
    kept = []
    for line in (SOURCE / path).read_text(encoding="utf-8").splitlines():
        line = " ".join(line.split())
        if len(line) > 3 and not line.startswith(("#", "from ", "import ", '"""')):
            kept.append(line)
    return kept


def test_no_two_rooms_share_a_run_of_lines() -> None:
    runs: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for path in modules():
        lines = plain_lines(path)
        for start in range(len(lines) - SHARED_RUN + 1):
            runs[tuple(lines[start : start + SHARED_RUN])].add(room(path))
    assert [run[0] for run, rooms in runs.items() if len(rooms) > 1] == []


def imports() -> dict[str, set[str]]:
    """Which rooms each room imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in modules().items():
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                parts = name.split(".")
                if parts[0] == "holotron" and len(parts) > 1 and (SOURCE / parts[1]).is_dir() and room(path):
                    found[room(path)].add(parts[1])
    return {name: rooms - {name} for name, rooms in found.items()}


def test_the_architecture_page_says_what_imports_what() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/` \| .*? \| ([^|]*) \|$", text, flags=re.MULTILINE)
    said = {name: set(re.findall(r"\w+", rooms)) - {"nothing"} for name, rooms in rows}
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert said.keys() == rooms
    found = imports()
    assert {name: said[name] for name in sorted(said)} == {name: found.get(name, set()) for name in sorted(said)}
