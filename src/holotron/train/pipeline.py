"""A pipeline: named steps from nothing to measured weights, each a `holotron` command line, in a TOML file.

What is done is noted in a state file, so that the same call goes on wherever it was stopped: a step is done while its
definition and its inputs are what they were when it ended and its outputs are there. An input that another step made
counts as changed when that step has run again; any other file by its content, a folder by the sizes and times in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holotron.episodes.files import lock, write_whole
from holotron.train.toml_file import build, read_toml

STATE, LOCK, LOGS, REPLACED = "state.json", "lock", "logs", "replaced"
COMMAND = "holotron"
FROM_FILE = "@"


class PipelineError(ValueError):
    """A pipeline that cannot be run as it is written."""


class StepFailed(RuntimeError):
    """A step that did not end well. tail: the last lines of its log."""

    def __init__(self, message: str, tail: str = "") -> None:
        super().__init__(message)
        self.tail = tail


@dataclass(frozen=True)
class PipelineStep:
    """run: a `holotron` command line; @FILE in it stands for the lines of that file, an argument each.

    inputs and outputs: files and folders it reads and makes. seconds: how long it takes on the pipeline's `machine`.
    """

    name: str
    run: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not self.name or not all(letter.isalnum() or letter in "-_" for letter in self.name):
            raise ValueError(f"a step is named {self.name!r}; use letters, digits, - and _")
        words = shlex.split(self.run)
        if words[:1] != [COMMAND]:
            raise ValueError(f"the step {self.name} runs {self.run[:40]!r}; a step is a command of {COMMAND}")
        for word in words:
            if word.startswith(FROM_FILE) and word[1:] not in self.inputs:
                raise ValueError(f"the step {self.name} takes words from {word[1:]!r}, which is not among its inputs")
        if not self.outputs:
            raise ValueError(f"the step {self.name} has no outputs; it could never be done")

    def arguments(self, folder: Path) -> list[str]:
        """What follows the command, with the lines of @FILE in its place."""
        words: list[str] = []
        for word in shlex.split(self.run)[1:]:
            if word.startswith(FROM_FILE):
                lines = (folder / word[1:]).read_text(encoding="utf-8").split()
                if not lines:
                    raise PipelineError(f"{word[1:]} is empty, and the step {self.name} takes words from it")
                words += lines
            else:
                words.append(word)
        return words


@dataclass(frozen=True)
class Pipeline:
    """folder: where commands run and paths begin, seen from the file. state: where state and logs go, seen from there.

    machine: what the steps' seconds are for.
    """

    name: str
    state: str
    steps: tuple[PipelineStep, ...]
    folder: Path
    machine: str = ""

    def __post_init__(self) -> None:
        if not self.steps:
            raise PipelineError("a pipeline has at least one step")
        makers: dict[str, str] = {}
        names: set[str] = set()
        outputs = {output for step in self.steps for output in step.outputs}
        for step in self.steps:
            if step.name in names:
                raise PipelineError(f"two steps are called {step.name!r}")
            names.add(step.name)
            for path in step.inputs:
                if _parents(path) & outputs and not _parents(path) & makers.keys():
                    raise PipelineError(f"the step {step.name} reads {path!r}, which a later step makes")
            for path in step.outputs:
                if path in makers:
                    raise PipelineError(f"{path!r} is made by two steps, {makers[path]} and {step.name}")
                makers[path] = step.name

    def maker(self, path: str) -> PipelineStep | None:
        """The step that makes a file or folder, or one that it lies in."""
        return next((step for step in self.steps if _parents(path) & set(step.outputs)), None)

    @property
    def home(self) -> Path:
        return self.folder / self.state


def _parents(path: str) -> set[str]:
    """A path and the folders it lies in."""
    return {str(each) for each in (Path(path), *Path(path).parents)}


def read_pipeline(path: Path) -> Pipeline:
    """The pipeline in a file."""
    value = read_toml(path, PipelineError)
    steps = value.pop("step", [])
    if "steps" in value:
        raise PipelineError(f"{path} has the unknown key 'steps'; write each step as [[step]]")
    folder = value.pop("folder", ".")
    if not isinstance(folder, str):
        raise PipelineError(f"{path}: folder is {folder!r}; it must be of type str")
    for key in ("name", "state"):
        if key not in value:
            raise PipelineError(f"{path} lacks the key {key!r}")
    return build(
        Pipeline, value | {"steps": steps, "folder": (path.parent / folder).resolve()}, str(path), PipelineError
    )


@dataclass(frozen=True)
class StepStatus:
    """How a step stands. done: it need not run. why: what there is to do. seconds: measured, or expected."""

    step: PipelineStep
    done: bool
    why: str
    seconds: float | None


@dataclass
class PipelineState:
    """What has become of a pipeline's steps, in a file that is whole at any time."""

    pipeline: Pipeline
    records: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, pipeline: Pipeline) -> PipelineState:
        path = pipeline.home / STATE
        try:
            return cls(pipeline, json.loads(path.read_text(encoding="utf-8"))["steps"])
        except FileNotFoundError:
            return cls(pipeline)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PipelineError(f"{path} cannot be read ({error!r}); remove it to run everything again") from error

    def write(self) -> None:
        self.pipeline.home.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"pipeline": self.pipeline.name, "steps": self.records}, indent=1)
        write_whole(self.pipeline.home / STATE, text.encode(), sync=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Inside, no other process runs this pipeline."""
        self.pipeline.home.mkdir(parents=True, exist_ok=True)
        path = self.pipeline.home / LOCK
        path.touch()
        descriptor = lock(path)
        if descriptor is None:
            raise OSError(f"another process is running this pipeline ({path} is locked)")
        try:
            yield
        finally:
            os.close(descriptor)

    def status(self, step: PipelineStep) -> StepStatus:
        record = self.records.get(step.name)
        if record is None:
            return StepStatus(step, False, "not run yet", step.seconds)
        seconds = record["seconds"] if record["status"] in ("done", "again") else step.seconds
        why = self._changed(step, record) or {"again": "to be run again", "done": ""}.get(
            record["status"], f"{record['status']}: goes on"
        )
        if not why:
            gone = [path for path, mark in record["outputs"].items() if self._output(path) != mark]
            why = f"{gone[0]} is gone or was changed" if gone else ""
        return StepStatus(step, not why, why or "done", seconds)

    def _changed(self, step: PipelineStep, record: dict[str, Any]) -> str:
        if record["definition"] != _definition(step):
            return "its definition changed"
        for path in step.inputs:
            if record["inputs"].get(path) != self._input(path):
                return f"{path} changed"
        return ""

    # ---- while it runs ----

    def begin(self, step: PipelineStep) -> None:
        """Note that a step runs. What it made under another definition or from other inputs is put aside first."""
        record = self.records.get(step.name, {})
        for path in step.inputs:
            if self._input(path) is None:
                raise PipelineError(f"the step {step.name} reads {path}, which is not there")
        if record and (record["status"] == "again" or self._changed(step, record)):
            self._put_aside(step)
            record = {}
        self.records[step.name] = {
            "status": "interrupted",  # unless it comes to say otherwise
            "definition": _definition(step),
            "inputs": {path: self._input(path) for path in step.inputs},
            "outputs": {},
            "seconds": record.get("seconds", 0.0),
        }
        self.write()

    def end(self, step: PipelineStep, status: str, seconds: float) -> None:
        """Note how a step ended; StepFailed if it is done and has not made what it should have."""
        record = self.records[step.name]
        record |= {"status": status, "seconds": record["seconds"] + seconds, "ended": time.time()}
        if status == "done":
            record["token"] = uuid.uuid4().hex
            record["outputs"] = {path: self._output(path) for path in step.outputs}
            if missing := [path for path, mark in record["outputs"].items() if mark is None]:
                record["status"] = "failed"
                self.write()
                raise StepFailed(f"the step {step.name} ended well and has not made {missing[0]}")
        self.write()

    def again(self, steps: list[PipelineStep]) -> None:
        """Have these run anew, done or not."""
        for step in steps:
            if step.name in self.records:
                self.records[step.name]["status"] = "again"
        self.write()

    def _put_aside(self, step: PipelineStep) -> None:
        aside = self.pipeline.home / REPLACED
        number = sum(path.name.startswith(f"{step.name}.") for path in aside.iterdir()) if aside.is_dir() else 0
        for path in step.outputs:
            made = self.pipeline.folder / path
            if made.exists():
                place = aside / f"{step.name}.{number}" / path.replace("/", "_")
                place.parent.mkdir(parents=True, exist_ok=True)
                made.rename(place)

    # ---- fingerprints ----

    def _input(self, path: str) -> str | None:
        """What an input is now; None if it is not there."""
        there = self.pipeline.folder / path
        if not there.exists():
            return None
        maker = self.pipeline.maker(path)
        if maker is not None:
            return str(self.records.get(maker.name, {}).get("token"))
        return _file_mark(there) if there.is_file() else _folder_mark(there)

    def _output(self, path: str) -> str | None:
        """A file by its content; of a folder, only whether there is something in it: later steps may add to it."""
        there = self.pipeline.folder / path
        if there.is_file():
            return _file_mark(there)
        return "folder" if there.is_dir() and any(there.iterdir()) else None


def _definition(step: PipelineStep) -> str:
    text = json.dumps([shlex.split(step.run), list(step.inputs), list(step.outputs)])
    return hashlib.sha256(text.encode()).hexdigest()


def _file_mark(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _folder_mark(folder: Path) -> str:
    marks = sorted(
        (str(path.relative_to(folder)), (stat := path.stat()).st_size, stat.st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    )
    return hashlib.sha256(json.dumps(marks).encode()).hexdigest()
