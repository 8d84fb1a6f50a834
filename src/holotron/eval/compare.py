"""Reports of several runs on the same items, compared item by item with the first.

Read are reports of grounding benchmarks ("results"), of suites ("tasks"), of questions about screens ("questions") and
of recall ("scores").
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holotron.eval.paired import Pair, PairedDifference, difference
from holotron.eval.statistics import wilson

ALL = "all"
SHOWN = 3  # examples of items that one report has and another has not
SAID = ("right", "seconds", "point", "answer", "characters")  # of a question: what the policy did, not what was asked


class CompareError(ValueError):
    """Reports that cannot be compared."""


@dataclass(frozen=True)
class ItemScore:
    """How often an item was solved. groups: by grouping, those it belongs to."""

    right: int
    of: int
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class ScoredReport:
    """One run. about: what must be the same in runs that are compared."""

    name: str
    about: Mapping[str, Any]
    items: Mapping[str, ItemScore]


@dataclass(frozen=True)
class Rate:
    """Of one run in one group, and the difference to the first run; None for the first run itself."""

    right: int
    of: int
    change: PairedDifference | None

    @property
    def rate(self) -> float:
        return self.right / self.of if self.of else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.right, self.of)


@dataclass(frozen=True)
class RunComparison:
    """names: of the runs, the first is what the others are compared with. rows: grouping, group, a rate per run."""

    names: tuple[str, ...]
    about: Mapping[str, Any]
    items: int
    left_out: int
    rows: tuple[tuple[str, str, tuple[Rate, ...]], ...]

    @property
    def total(self) -> tuple[Rate, ...]:
        return self.rows[0][2]

    def to_dict(self) -> dict[str, Any]:
        """As JSON; rates with their intervals, changes against the first run."""
        rows = [
            {
                "grouping": grouping,
                "group": group,
                "runs": [
                    {
                        "right": rate.right,
                        "of": rate.of,
                        "rate": rate.rate,
                        "interval": list(rate.interval),
                        "change": None if rate.change is None else vars(rate.change),
                    }
                    for rate in rates
                ],
            }
            for grouping, group, rates in self.rows
        ]
        about = {"runs": list(self.names), "about": dict(self.about)}
        return {**about, "items": self.items, "left_out": self.left_out, "rows": rows}


def read_report(path: Path) -> ScoredReport:
    """CompareError where the file, or report.json in the folder, has no scores of single items or tasks."""
    path = path / "report.json" if path.is_dir() else path
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CompareError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CompareError(f"{path} is no JSON: {error}") from None
    for key, reader in READERS.items():
        if isinstance(found, dict) and isinstance(found.get(key), list) and found[key]:
            try:
                items = dict(reader(found))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise CompareError(f"{path} has {key!r} in a form that is not known: {error!r}") from None
            benchmark = found.get("benchmark") or ("screens" if key == "questions" else key)
            about = {
                "benchmark": benchmark,
                **{name: found[name] for name in ("protocol", "max_steps") if name in found},
            }
            return ScoredReport(str(found.get("policy") or found.get("model") or path.stem), about, items)
    raise CompareError(f"{path} is no report of an evaluation: it has none of {', '.join(READERS)}")


def _results(found: Mapping[str, Any]) -> Iterator[tuple[str, ItemScore]]:
    for each in found["results"]:
        yield str(each["id"]), ItemScore(int(bool(each["right"])), 1, each["groups"])


def _tasks(found: Mapping[str, Any]) -> Iterator[tuple[str, ItemScore]]:
    """Episodes where the report has them, else whole tasks."""
    for row in found["tasks"]:
        groups = {"group": row.get("groups", []), "task": [str(row["task"])]}
        for seed, solved in (row.get("solved_by_seed") or {}).items():
            yield f"{row['task']}/{seed}", ItemScore(int(bool(solved)), 1, groups)
        if "solved_by_seed" not in row:
            yield str(row["task"]), ItemScore(int(row["successes"]), int(row["episodes"]), groups)


def _questions(found: Mapping[str, Any]) -> Iterator[tuple[str, ItemScore]]:
    for each in found["questions"]:
        asked = {name: value for name, value in each.items() if name not in SAID}
        groups = {name: [str(each[name])] for name in ("source", "kind") if name in each}
        yield json.dumps(asked, sort_keys=True), ItemScore(int(bool(each["right"])), 1, groups)


def _recall(found: Mapping[str, Any]) -> Iterator[tuple[str, ItemScore]]:
    for each in found["scores"]:
        groups = {"condition": [str(each["condition"])], "asked at": [str(each["asked_at"])]}
        yield f"{each['condition']} at {each['asked_at']}", ItemScore(int(each["right"]), int(each["trials"]), groups)


READERS = {"results": _results, "tasks": _tasks, "questions": _questions, "scores": _recall}


def compare(reports: Sequence[ScoredReport], *, common: bool = False) -> RunComparison:
    """Compare each run with the first. CompareError where their items are not the same.

    common: items that a run has not are left out instead.
    """
    first = reports[0]
    for other in reports[1:]:
        for name in sorted({*first.about, *other.about}):
            mine, theirs = first.about.get(name), other.about.get(name)
            if mine != theirs:
                raise CompareError(f"{name} is {mine!r} in {first.name} and {theirs!r} in {other.name}")
        if not common:
            _check_items(first, other)
    shared = [name for name in first.items if all(name in other.items for other in reports)]
    left_out = len({name for report in reports for name in report.items}) - len(shared)
    if not shared:
        raise CompareError("the reports have no item in common")
    groups: dict[tuple[str, str], list[str]] = {(ALL, ALL): shared}
    for name in shared:
        for grouping, found in first.items[name].groups.items():
            for group in found:
                groups.setdefault((grouping, str(group)), []).append(name)
    for grouping in _groupings(first):  # one that has an item tried once in each group says nothing more
        parts = [key for key in groups if key[0] == grouping]
        if all(len(groups[key]) == 1 and first.items[groups[key][0]].of == 1 for key in parts):
            groups = {key: names for key, names in groups.items() if key not in parts or key[0] == ALL}
    order = sorted(groups, key=lambda key: (key[0] != ALL, list(_groupings(first)).index(key[0]), key[1]))
    rows = tuple((*key, _rates(reports, groups[key])) for key in order)
    return RunComparison(_names(reports), first.about, len(shared), left_out, rows)


def _groupings(report: ScoredReport) -> dict[str, None]:
    found = dict.fromkeys([ALL])
    for item in report.items.values():
        found |= dict.fromkeys(item.groups)
    return found


def _check_items(first: ScoredReport, other: ScoredReport) -> None:
    told = []
    for one, two in ((first, other), (other, first)):
        alone = [name for name in one.items if name not in two.items]
        if alone:
            told.append(f"{len(alone)} items are only in {one.name}, such as {', '.join(alone[:SHOWN])[:300]}")
    if told:
        raise CompareError(f"the runs are not on the same items: {'; '.join(told)}; --common leaves those out")


def _names(reports: Sequence[ScoredReport]) -> tuple[str, ...]:
    """Runs of one policy are told apart by their places."""
    names = [report.name for report in reports]
    return tuple(name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, 1))


def _rates(reports: Sequence[ScoredReport], items: Sequence[str]) -> tuple[Rate, ...]:
    first, rates = reports[0], list[Rate]()
    for report in reports:
        scores = [(first.items[name], report.items[name]) for name in items]
        pairs = [Pair((mine.right, theirs.right), (mine.of, theirs.of)) for mine, theirs in scores]
        right, of = (sum(getattr(theirs, what) for _, theirs in scores) for what in ("right", "of"))
        tried = of and sum(mine.of for mine, _ in scores)
        rates.append(Rate(right, of, difference(pairs) if report is not first and tried else None))
    return tuple(rates)
