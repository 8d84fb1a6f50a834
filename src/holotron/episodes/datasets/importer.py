"""A data set into a store of episodes: every record is checked, what is wrong with one is counted and named.

import.json      what was imported, in which space, and what was left out; written whole, at the beginning and the end
problems.jsonl   each record that was left out: where it stands, and why

An import that was stopped, in whatever way, goes on where it was with the same command.
"""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from holotron.actions.action import ActionError
from holotron.actions.coordinates import Probe
from holotron.episodes.datasets.answers import CODE, POINT, find_form, read_answer
from holotron.episodes.datasets.building import Made, build_episode, episode_id
from holotron.episodes.datasets.drafts import Draft, DraftStep
from holotron.episodes.datasets.layouts import read_drafts
from holotron.episodes.datasets.pictures import SourcePictures
from holotron.episodes.datasets.records import (
    BadRecord,
    DatasetError,
    SourceRecord,
    Unsupported,
    read_records,
    source_files,
)
from holotron.episodes.datasets.settings import ImportSettings
from holotron.episodes.datasets.spaces import SeenNumbers, find_space, space_of_format
from holotron.episodes.files import whole_file, write_whole
from holotron.episodes.store import EpisodeStore
from holotron.episodes.transfer import copy_in

REPORT, PROBLEMS = "import.json", "problems.jsonl"
LOOKED_AT, LOOKED_BYTES = 5000, 256 << 20  # drafts from which the space and the form of answers are detected
AHEAD = 2  # drafts whose images are read while one is written, for each thread
THREADS = min(8, os.cpu_count() or 1)
DUPLICATE = "duplicate"


@dataclass
class ImportReport:
    """What became of the records. bad, unsupported: how many of each kind were left out."""

    settings: dict[str, str | None]
    detected: list[str] = field(default_factory=list)
    episodes: int = 0
    already: int = 0
    steps: int = 0
    names: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    cut: int = 0
    examples: dict[str, list[str]] = field(default_factory=dict)
    finished: bool = False

    @property
    def bad_share(self) -> float:
        return self.bad.total() / max(1, self.bad.total() + self.episodes + self.unsupported.total() + self.duplicates)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "bad_share": self.bad_share}


def import_dataset(
    settings: ImportSettings, out: Path, on_progress: Callable[[ImportReport], None] = lambda _: None
) -> ImportReport:
    """Bring a data set into the store `out`. DatasetError where too much of it is bad: what was good is there."""
    if settings.source.is_dir() and out.resolve().is_relative_to(settings.source.resolve()):
        raise DatasetError(f"{out} is inside {settings.source}, which is read; choose a folder outside")
    settings, detected = complete(settings, read_report(out) or {})
    report = ImportReport(settings.told, detected)
    _claim(out, settings, report)
    store = EpisodeStore(out, sync="never")  # which a killed process loses nothing by; all is synced at the end
    done = {info.id: info.step_count or 0 for info in store.list_episodes(finished=True, on_damage=lambda _: None)}
    seen: set[str] = set()
    with whole_file(out / PROBLEMS, sync=False) as partial, partial.open("w", encoding="utf-8") as problems:

        def left_out(where: str, problem: BadRecord) -> None:
            counts = report.unsupported if isinstance(problem, Unsupported) else report.bad
            if problem.kind == DUPLICATE:
                report.duplicates += 1
            else:
                counts[problem.kind] += 1
            report.examples.setdefault(problem.kind, [])
            if len(report.examples[problem.kind]) < 5:
                report.examples[problem.kind].append(f"{where}: {problem}")
            line = {"where": where, "kind": problem.kind, "problem": str(problem)}
            problems.write(json.dumps(line, ensure_ascii=False) + "\n")

        def wanted() -> Iterator[Draft]:
            for draft in source_drafts(settings, lambda record, problem: left_out(record.where, problem)):
                name = episode_id(settings.layout, draft)
                if name in seen:
                    left_out(draft.where, BadRecord(DUPLICATE, "the same is there already"))
                elif name in done:
                    report.already += 1
                    _count(report, draft, done[name])
                else:
                    yield draft
                seen.add(name)

        with closing(_built(settings, wanted())) as built:
            for draft, made in built:
                if isinstance(made, BadRecord):
                    left_out(draft.where, made)
                else:
                    info, steps = made
                    # Many records are about one picture: it is written once.
                    kept = store.images.__contains__
                    copy_in(store, info, [(s, None if kept(s.observation.image or "") else png) for s, png in steps])
                    _count(report, draft, len(steps))
                on_progress(report)
    os.sync()
    report.finished = True
    _write(out, report)
    if report.bad_share > settings.most_bad:
        raise DatasetError(_too_bad(report, settings.most_bad, out))
    if not report.episodes:
        raise DatasetError(f"{settings.source} has nothing that could be imported as {settings.layout}")
    return report


def read_report(out: Path) -> dict[str, Any] | None:
    """What the import of a store says of itself; None where it is no import, or not one that can be read."""
    try:
        value = json.loads((out / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def source_drafts(settings: ImportSettings, left_out: Callable[[SourceRecord, BadRecord], None]) -> Iterator[Draft]:
    """The drafts of a source, in order."""
    files = source_files(settings.source, settings.images)
    records = (record for file in files for record in read_records(file))
    return islice(read_drafts(settings.layout, records, left_out), settings.limit)


def _count(report: ImportReport, draft: Draft, steps: int) -> None:
    report.episodes += 1
    report.steps += steps
    report.cut += steps < len(draft.steps)
    report.names[draft.name] += 1


# ---- what is not said ----


def complete(settings: ImportSettings, report: dict[str, Any]) -> tuple[ImportSettings, list[str]]:
    """The settings with all that was not said: as the import in the folder had it, else detected."""
    before = report.get("settings") or {}
    same = all(before.get(key) == value for key, value in settings.told.items() if value is not None)
    if before and same:
        known: dict[str, Any] = {key: before.get(key) for key in ("space", "boxes", "answers")}
        return replace(settings, **known), list(report.get("detected") or [])
    drafts, looked = list[Draft](), 0
    for draft in islice(source_drafts(settings, lambda *_: None), LOOKED_AT):
        drafts.append(draft)
        looked += sum(len(step.image) for step in draft.steps)  # which may be the picture itself
        if looked > LOOKED_BYTES:
            break
    if not drafts:
        return replace(settings, space=settings.space or "0..1"), []
    pictures, told = SourcePictures(), []
    for name in ("space", "boxes"):  # as the records themselves say
        [said, *others] = {getattr(draft, name) for draft in drafts}
        if getattr(settings, name) is None and not others:
            settings = replace(settings, **{name: said})
    sized = [(draft, step, size) for draft in drafts for step in draft.steps if (size := _size(pictures, draft, step))]
    form = settings.answers
    unread = [(step.answer, size) for draft, step, size in sized if _is_answer(step) and draft.answers is None]
    if form is None and unread:
        form = find_form(unread, settings.most_bad)
        told.append("answers")
    stated = next((draft.answers for draft, step, _ in sized if _is_answer(step) and draft.answers), form)
    if stated is not None and stated not in (CODE, POINT):
        if settings.space is not None:
            raise DatasetError(f"answers in the words of {stated} have their own space; leave --space out")
        return replace(settings, space=space_of_format(stated), answers=form), told
    seen = [one for draft, step, size in sized if (one := _seen(draft, step, size, form)) is not None]
    space, boxes = find_space(seen, settings.space, settings.boxes, settings.most_bad)
    told += ["space"] * (settings.space is None and bool(seen)) + ["boxes"] * (settings.boxes != boxes)
    return replace(settings, space=space, boxes=boxes, answers=form), told


def _is_answer(step: DraftStep) -> bool:
    return step.box is None and not step.outline and not step.absent


def _size(pictures: SourcePictures, draft: Draft, step: DraftStep) -> tuple[int, int] | None:
    try:
        return pictures.size(draft.images, step.image)
    except BadRecord:
        return None


def _seen(draft: Draft, step: DraftStep, size: tuple[int, int], form: str | None) -> SeenNumbers | None:
    """The numbers of a step whose space is asked for; None where its own words say the space."""
    if step.box is not None or step.outline or step.absent:
        return seen_target(step, size)
    form = draft.answers or form or CODE
    if form not in (CODE, POINT):
        return None
    probe = Probe("relative", *size)
    try:
        read_answer(form, step.answer, size, probe)
    except ActionError:
        return None
    return SeenNumbers(size, step.stated, tuple(probe.points))


def seen_target(step: DraftStep, size: tuple[int, int]) -> SeenNumbers:
    """The numbers by which a labelled element is given."""
    return SeenNumbers(size, step.stated, step.outline, step.box)


def _claim(out: Path, settings: ImportSettings, report: ImportReport) -> None:
    """A folder belongs to one import: going on with other settings would be neither."""
    if out.exists() and not out.is_dir():
        raise DatasetError(f"{out} is a file; an import is a folder")
    before = (read_report(out) or {}).get("settings") or {}
    different = sorted(key for key in settings.told if before and before.get(key) != settings.told[key])
    if different:
        raise DatasetError(
            f"{out} holds an import with other settings ({', '.join(f'{key} {before.get(key)!r}' for key in different)}"
            "); choose another folder, or remove it"
        )
    if not before and out.is_dir() and any(out.iterdir()):
        raise DatasetError(f"{out} is not empty and no import; choose a new folder")
    out.mkdir(parents=True, exist_ok=True)
    (out / "episodes").mkdir(exist_ok=True)
    if not before:
        _write(out, report)


def _write(out: Path, report: ImportReport) -> None:
    write_whole(out / REPORT, json.dumps(report.to_dict(), indent=1, ensure_ascii=False).encode() + b"\n", sync=True)


def _too_bad(report: ImportReport, most: float, out: Path) -> str:
    kind, count = report.bad.most_common(1)[0]
    return (
        f"{100 * report.bad_share:.1f}% of the records are bad, and {100 * most:g}% may be: most often {kind} "
        f"({count}), such as {report.examples[kind][0]}; {out / PROBLEMS} has all. Mend them, or allow more with "
        "--max-bad"
    )


# ---- in threads ----


def _built(settings: ImportSettings, drafts: Iterator[Draft]) -> Generator[tuple[Draft, Made | BadRecord]]:
    """Drafts with what they became, in order; images are read by threads ahead of the one that is asked for."""
    pictures, waiting = SourcePictures(), deque[tuple[Draft, Future[Made | BadRecord]]]()
    with ThreadPoolExecutor(THREADS) as threads:
        while True:
            for draft in islice(drafts, THREADS * AHEAD - len(waiting)):
                waiting.append((draft, threads.submit(_build, settings, draft, pictures)))
            if not waiting:
                return
            draft, future = waiting.popleft()
            yield draft, future.result()


def _build(settings: ImportSettings, draft: Draft, pictures: SourcePictures) -> Made | BadRecord:
    try:
        return build_episode(settings, draft, pictures)
    except BadRecord as problem:
        return problem
    except ValidationError as error:
        return BadRecord("not a record", " ".join(str(error).split())[:200])
