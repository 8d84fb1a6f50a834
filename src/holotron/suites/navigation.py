"""Published tasks on live sites: WebVoyager by its named subsets, Online-Mind2Web by the date of its list.

The files are the user's. WebVoyager: JSON lines with web_name, id, ques and web. Online-Mind2Web: a JSON list (or
lines) with task_id, website, confirmed_task, level and reference_length. How an episode ended is known once it was
judged (`eval/judging.py`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from holotron.agent.agent import Ending
from holotron.env.browser.environment import BrowserEnv
from holotron.env.errors import ActionFailed, InfrastructureError
from holotron.env.task import Task
from holotron.suites.barriers import barrier_by_words
from holotron.suites.suite import EvalProtocol, SuiteError
from holotron.suites.web import TaskFileError, WebSuite

# How many tasks each named subset of WebVoyager has. Scores of different ones cannot be compared.
SUBSETS = {"original-643": 643, "browser-use-588": 588, "magnitude-590": 590}
ONLINE_MIND2WEB = 300
MAX_STEPS = {"webvoyager": 15, "online-mind2web": 30}
_WEBVOYAGER_ID = re.compile(r"[A-Za-z ]+--\d+")
_DATE = re.compile(r"20\d\d-[01]\d-[0-3]\d")


@dataclass(frozen=True)
class NavigationTask:
    """One task: group is its site's name, or its difficulty."""

    id: str
    text: str
    url: str
    group: str = ""


@dataclass(frozen=True)
class TaskList:
    """Tasks under the name that their scores have, and what is kept of where they come from."""

    name: str
    tasks: tuple[NavigationTask, ...]
    max_steps: int
    file: str
    sha256: str
    date: str | None = None

    @property
    def manifest(self) -> dict[str, Any]:
        return {"name": self.name, "file": self.file, "sha256": self.sha256, "date": self.date}


def read_webvoyager(
    path: Path,
    subset: str,
    *,
    without: Path | None = None,
    patches: Path | None = None,
    date: str | None = None,
) -> TaskList:
    """A named subset. without: ids that are left out; patches: new texts by id, or removals; both as published.

    The number of tasks that are left must be the subset's.
    """
    if subset not in SUBSETS:
        raise SuiteError(f"there is no subset {subset!r} of WebVoyager; choose one of {', '.join(SUBSETS)}")
    rows, digest = _rows(path)
    tasks = {
        task.id: task
        for task in (_task(path, number, row, ("id", "ques", "web", "web_name")) for number, row in enumerate(rows, 1))
    }
    if strange := next((each for each in tasks if not _WEBVOYAGER_ID.fullmatch(each)), None):
        raise TaskFileError(f"{path}: the id {strange!r} is none of WebVoyager's, which are such as Allrecipes--0")
    if patches is not None:
        tasks = _patched(tasks, patches)
    for name in _ids(without) if without is not None else ():
        if tasks.pop(name, None) is None:
            raise TaskFileError(f"{without}: {path} has no task {name!r} to leave out")
    if len(tasks) != SUBSETS[subset]:
        way = "" if subset == "original-643" else "; name the published list of what it leaves out with --without FILE"
        raise TaskFileError(f"{path}: {len(tasks)} tasks are left, and {subset} has {SUBSETS[subset]}{way}")
    return TaskList(
        f"webvoyager-{subset}", tuple(tasks.values()), MAX_STEPS["webvoyager"], path.name, digest, _checked(date)
    )


def read_online_mind2web(path: Path, date: str) -> TaskList:
    """The list of a date, which is a part of its name: its tasks are replaced from time to time."""
    rows, digest = _rows(path)
    keys = ("task_id", "confirmed_task", "website", "level")
    tasks = tuple(_task(path, number, row, keys) for number, row in enumerate(rows, 1))
    if len(tasks) != ONLINE_MIND2WEB:
        raise TaskFileError(f"{path} has {len(tasks)} tasks, and Online-Mind2Web has {ONLINE_MIND2WEB}")
    date = _checked(date) or ""
    return TaskList(f"online-mind2web-{date}", tasks, MAX_STEPS["online-mind2web"], path.name, digest, date)


@dataclass(frozen=True)
class NavigationSuite(WebSuite):
    """Such tasks in browsers that may go anywhere public. Outcomes have no success: a judge says it later."""

    width: int = 1024
    height: int = 768
    anywhere: bool = True
    tasks_listed: tuple[NavigationTask, ...] = ()
    name: str = "navigation"
    step_limit: int = 15

    @classmethod
    def of(cls, listed: TaskList, **options: Any) -> NavigationSuite:
        return cls(tasks_listed=listed.tasks, name=listed.name, step_limit=listed.max_steps, **options)

    def names(self, split: str | None = None) -> tuple[str, ...]:
        return tuple(task.id for task in self.tasks_listed)

    def protocols(self) -> tuple[EvalProtocol, ...]:
        return (EvalProtocol(self.name, self.names(), 1, self.step_limit),)

    def task(self, name: str, seed: int) -> Task:
        found = self.find(name)
        return Task(text=found.text, url=found.url, benchmark=self.name, name=name, seed=seed)

    def find(self, name: str) -> NavigationTask:
        return self._by_id[name]

    async def judge(self, env: BrowserEnv, task: Task, ending: Ending, rule: str) -> Ending:
        """Of a page that keeps the agent out, its words are the detail; an answer stays in its step."""
        with suppress(ActionFailed, InfrastructureError):  # a page that does not answer shows nothing
            if barrier := barrier_by_words(str(await env.evaluate("document.body?.innerText ?? ''"))):
                return replace(ending, answer="", detail=barrier)
        return ending

    @cached_property
    def _by_id(self) -> Mapping[str, NavigationTask]:
        return {task.id: task for task in self.tasks_listed}


# ---- files ----


def _rows(path: Path) -> tuple[list[Mapping[str, Any]], str]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TaskFileError(f"{path} cannot be read: {error.strerror}") from None
    text = data.decode("utf-8", "replace").strip()
    try:
        found = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines() if line]
    except ValueError as error:
        raise TaskFileError(f"{path} is neither a JSON list nor JSON lines: {error}") from None
    if not found or not all(isinstance(row, dict) for row in found):
        raise TaskFileError(f"{path} holds no tasks, which are JSON objects")
    for key in ("id", "task_id"):
        repeated = [name for name, count in Counter(str(row.get(key)) for row in found).items() if count > 1]
        if repeated and key in found[0]:
            raise TaskFileError(f"{path}: the task {repeated[0]!r} is there more than once")
    return found, hashlib.sha256(data).hexdigest()


def _task(path: Path, number: int, row: Mapping[str, Any], keys: Sequence[str]) -> NavigationTask:
    for key in keys[:3]:
        if not isinstance(row.get(key), str) or not row[key].strip():
            raise TaskFileError(f"{path}, task {number}: its {key} is {row.get(key)!r}; it must be a text")
    name, text, url = (row[key].strip() for key in keys[:3])
    if not url.startswith(("http://", "https://")):
        raise TaskFileError(f"{path}, task {number}: its {keys[2]} is {url!r}; it must begin with http:// or https://")
    return NavigationTask(name, text, url, str(row.get(keys[3]) or ""))


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TaskFileError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise TaskFileError(f"{path} is not JSON: {error}") from None


def _ids(path: Path) -> list[str]:
    """From a list of ids or of objects with an id, or such lists by site, as published."""
    found = _json(path)
    if isinstance(found, dict) and all(isinstance(each, list) for each in found.values()):
        found = [each for site in found.values() for each in site]
    names = [each.get("id") if isinstance(each, dict) else each for each in found if isinstance(found, list)]
    ids = [name for name in names if isinstance(name, str)]
    if not names or len(ids) < len(names):
        raise TaskFileError(f"{path} is no list of ids")
    return list(dict.fromkeys(ids))


def _patched(tasks: Mapping[str, NavigationTask], path: Path) -> dict[str, NavigationTask]:
    """Each patch has the text that is `new`; one without it, such as {"prev", "reason"}, removes the task."""
    found, left = _json(path), dict(tasks)
    if not isinstance(found, dict) or not all(isinstance(patch, dict) for patch in found.values()):
        raise TaskFileError(f'{path} is no JSON object with a patch for each id, such as {{"new": "…"}}')
    for name, patch in found.items():
        if name not in left:
            raise TaskFileError(f"{path}: there is no task {name!r} to patch")
        new = patch.get("new")
        if new is None:
            del left[name]
        elif isinstance(new, str) and new.strip():
            left[name] = replace(left[name], text=new.strip())
        else:
            raise TaskFileError(f"{path}: the new text of {name} is {new!r}")
    return left


def _checked(date: str | None) -> str | None:
    if date is not None and not _DATE.fullmatch(date):
        raise SuiteError(f"the date of the task list is {date!r}; write it as 2025-12-14")
    return date
