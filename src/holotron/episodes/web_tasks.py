"""Attempts in real browsers: each task with a context of its own, at its own address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from holotron.agent.agent import Agent, Budget, Ending
from holotron.agent.chat import ChatModel
from holotron.agent.policy_format import PolicyFormat
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.task import Task
from holotron.episodes.fleet import Attempt, Open, Record


class TaskFileError(ValueError):
    """A list of tasks that cannot be read."""


def read_tasks(path: Path, group: int = 1) -> list[Task]:
    """Tasks from a file of JSON lines: {"task": …, "url": …} and, if wanted, "name" and "seed"; each `group` times."""
    tasks: list[Task] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            unknown = entry.keys() - {"task", "url", "name", "seed"}
            if unknown:
                raise ValueError(f"unknown field {min(unknown)!r}")
            if not str(entry["url"]).startswith(("http://", "https://")):
                raise ValueError(f"the url is {entry['url']!r}; it must begin with http:// or https://")
            named = {key: entry[key] for key in ("name", "seed") if entry.get(key) is not None}
            tasks += [Task(text=entry["task"], url=entry["url"], sample=i, **named) for i in range(group)]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error).splitlines()[0]
            raise TaskFileError(f"{path}, line {number}: {what}") from error
    if not tasks:
        raise TaskFileError(f"{path} holds no tasks")
    return tasks


def web_attempts(
    browsers: Browsers,
    model: ChatModel,
    options: Callable[[Task], EnvOptions],
    policy_format: PolicyFormat,
    budget: Budget,
) -> Open:
    """What a fleet opens for each task."""

    def open_(task: Task) -> AbstractAsyncContextManager[Attempt]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Attempt]:
            async with await BrowserEnv.open(browsers, options(task)) as env:
                yield _Play(env, model, task, policy_format, budget)

        return opened()

    return open_


@dataclass
class _Play:
    env: BrowserEnv
    model: ChatModel
    task: Task
    policy_format: PolicyFormat
    budget: Budget

    async def play(self, record: Record) -> Ending:
        assert self.task.url is not None
        await self.env.goto(self.task.url)
        agent = Agent(self.model, self.env, policy_format=self.policy_format, budget=self.budget, on_step=record)
        return await agent.run(self.task.text)
