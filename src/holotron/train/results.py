"""What evaluations and runs left behind: the tasks that are still hard, and tables for a model's card."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"
Row = Sequence[str]


class ResultsError(ValueError):
    """A result that cannot be read, or a card that has no place for it."""


def read_report(path: Path) -> dict[str, Any]:
    """An evaluation's report: its file, or the folder of its run."""
    file = path / "report.json" if path.is_dir() else path
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{file} is no report of an evaluation: {error}") from error
    if not isinstance(value, dict):
        raise ResultsError(f"{file} is no report of an evaluation: it is no JSON object")
    return value


def hard_tasks(report: Mapping[str, Any], protocol: str, at_most: float) -> list[str]:
    """The tasks that were solved in at most that share of their episodes, in the protocol's order."""
    try:
        rows = report["protocols"][protocol]["tasks"]
        return [row["task"] for row in rows if row["episodes"] and row["successes"] <= at_most * row["episodes"] + 1e-9]
    except (KeyError, TypeError) as error:
        raise ResultsError(f"the report says nothing about {protocol}; it lacks {error}") from error


# ---- cards ----

_PLACE = re.compile(r"(<!-- results: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def fill_card(text: str, results: Iterable[tuple[str, Path]]) -> str:
    """The card with a table at each `<!-- results: NAME -->` … `<!-- end -->`, of the results of that name."""
    given: dict[str, list[Path]] = {}
    for name, path in results:
        given.setdefault(name, []).append(path)
    places = {match[2] for match in _PLACE.finditer(text)}
    for name in given:
        if name not in places:
            known = f"it has {', '.join(sorted(places))}" if places else "it has none"
            raise ResultsError(f"the card has no place <!-- results: {name} --> … <!-- end -->; {known}")
    if missing := sorted(places - given.keys()):
        raise ResultsError(f"the card has a place for {missing[0]}, and no result of that name was given")
    return _PLACE.sub(lambda match: match[1] + _table(given[match[2]]) + match[4], text)


def _table(paths: list[Path]) -> str:
    tables = [_run_table(path) if (path / METRICS).is_file() else _report_table(read_report(path)) for path in paths]
    heads = {tuple(head) for head, _ in tables}
    if len(heads) > 1:
        raise ResultsError(f"{', '.join(map(str, paths))} are results of different kinds; give them different names")
    head, rows = tables[0][0], [row for _, rows in tables for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def _run_table(run: Path) -> tuple[Row, list[Row]]:
    lines = (run / METRICS).read_text(encoding="utf-8").splitlines()
    last = json.loads(lines[-1])
    if "steps_per_second" in last:
        return _rl_table(run, [json.loads(line) for line in lines])
    recipe = json.loads((run / "recipe.json").read_text(encoding="utf-8"))
    row = recipe["name"], f"{last['step']:,}", f"{last['seconds']:,.0f}", f"{last['loss']:.3f}"
    return ("stage", "steps", "seconds", "loss"), [row]


def _rl_table(run: Path, lines: list[dict[str, Any]]) -> tuple[Row, list[Row]]:
    """Of online RL: what it took, and how many attempts succeeded in its first and its last iterations."""
    ends = [[line["success"] for line in some if line["success"] is not None] for some in (lines[:20], lines[-20:])]
    first, last = (f"{100 * sum(some) / len(some):.1f}%" if some else "–" for some in ends)
    episodes, seconds = (sum(line[name] for line in lines) for name in ("episodes", "seconds"))
    row = run.name, f"{len(lines):,}", f"{episodes:,}", f"{seconds:,.0f}", first, last
    return ("run", "iterations", "episodes", "seconds", "first 20", "last 20"), [row]


def _report_table(report: Mapping[str, Any]) -> tuple[Row, list[Row]]:
    if "protocols" in report:
        head, parts, right, total = ("protocol", "solved", "episodes"), report["protocols"], "successes", "episodes"
    elif "by_source" in report:
        parts = report.get("by_height", report["by_source"]) | {"all": report["all"]}
        head, right, total = ("screens", "right", "questions"), "right", "of"
    else:
        raise ResultsError(f"a report with {', '.join(sorted(report)[:6])} is of no kind that a card has a table for")
    return head, [
        (name, _share(part[right], part[total], part["interval"]), f"{part[total]:,}") for name, part in parts.items()
    ]


def _share(right: int, total: int, interval: Sequence[float]) -> str:
    low, high = interval
    return f"{100 * right / total:.1f}% ({100 * low:.1f} to {100 * high:.1f})" if total else "nothing played"
