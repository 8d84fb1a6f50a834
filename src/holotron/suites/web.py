"""Arbitrary sites as a suite: tasks from a file, each in a browser context of its own at its own address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from holotron.agent.agent import Ending
from holotron.agent.formats.base import BROWSER_KINDS
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.errors import ActionFailed, InfrastructureError, Refused
from holotron.env.safety.policy import SafetyPolicy, origin_of
from holotron.env.task import Scalar, Task
from holotron.episodes.record import EnvironmentInfo
from holotron.suites.suite import Suite

SUCCESS = "success"  # in a task's `extra`: what judges it


class TaskFileError(ValueError):
    """A list of tasks that cannot be read."""


def read_tasks(path: Path, group: int = 1) -> list[Task]:
    """Tasks from a file of JSON lines, each `group` times: {"task": …, "url": …}, and if wanted "name" and "seed".

    "success", a JavaScript expression that is true once the task is done, lets it be judged.
    """
    tasks: list[Task] = []
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TaskFileError(f"{path} is no text in UTF-8: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            unknown = entry.keys() - {"task", "url", "name", "seed", "success"}
            if unknown:
                raise ValueError(f"unknown field {min(unknown)!r}")
            if not str(entry["url"]).startswith(("http://", "https://")):
                raise ValueError(f"the url is {entry['url']!r}; it must begin with http:// or https://")
            named = {key: entry[key] for key in ("name", "seed") if entry.get(key) is not None}
            extra: dict[str, Scalar] = {SUCCESS: str(entry[SUCCESS])} if entry.get(SUCCESS) is not None else {}
            tasks += [Task(text=entry["task"], url=entry["url"], sample=i, extra=extra, **named) for i in range(group)]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error).splitlines()[0]
            raise TaskFileError(f"{path}, line {number}: {what}") from error
    if not tasks:
        raise TaskFileError(f"{path} holds no tasks")
    return tasks


@dataclass(frozen=True)
class WebSuite(Suite[BrowserEnv]):
    """Any site. allow: origins besides a task's own; anywhere: any public one. allow_private: hosts that may
    lead to this machine or a private network."""

    width: int = 1280
    height: int = 800
    allow: tuple[str, ...] = ()
    anywhere: bool = False
    allow_private: tuple[str, ...] = ()

    name = "web"
    kinds = BROWSER_KINDS

    def __post_init__(self) -> None:
        SafetyPolicy(list(self.allow), self.allow_private)  # what is no origin or host is refused here

    @property
    def environment(self) -> EnvironmentInfo:
        return EnvironmentInfo(name="browser", viewport=(self.width, self.height))

    def names(self, split: str | None = None) -> tuple[str, ...]:
        return ()

    def pool(self, pages: int, browsers: int = 1) -> Browsers:
        return Browsers(browsers)

    @asynccontextmanager
    async def begin(self, pool: Browsers, task: Task) -> AsyncIterator[BrowserEnv]:
        allowed = None if self.anywhere else [origin_of(task.url or ""), *self.allow]
        safety = SafetyPolicy(allowed, self.allow_private)
        options = EnvOptions(width=self.width, height=self.height, safety=safety)
        async with await BrowserEnv.open(pool, options) as env:
            try:
                await env.reset(task)
            except (ActionFailed, Refused) as error:  # not the policy's fault
                raise InfrastructureError(str(error)) from error
            yield env

    async def judge(self, env: BrowserEnv, task: Task, ending: Ending, rule: str) -> Ending:
        """By the task's own expression, where it has one."""
        if SUCCESS not in task.extra:
            return ending
        solved = bool(await env.evaluate(str(task.extra[SUCCESS])))
        return replace(ending, success=solved, reward=float(solved))
