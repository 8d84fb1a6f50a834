"""Several suites as one: their tasks side by side, each begun, judged and named as its own suite does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from holotron.agent.agent import Ending
from holotron.env.task import Task
from holotron.suites.suite import Suite


class MixedSuite(Suite[Any]):
    """What may be learned from in each of the suites. A task is called SUITE/TASK, and its episodes are of its suite.

    kinds: of all. Which of them make sense in a task says its own suite, as it says what is solved.
    """

    def __init__(self, members: Sequence[Suite[Any]]) -> None:
        self.members = {suite.name: suite for suite in members}
        self.name = "+".join(self.members)
        self.kinds = tuple(dict.fromkeys(kind for suite in members for kind in suite.kinds))
        self.max_steps = max(suite.max_steps for suite in members)

    def names(self, split: str | None = None) -> tuple[str, ...]:
        members = self.members.values()
        return tuple(f"{suite.name}/{name}" for suite in members for name in suite.part(suite.training_split))

    def task(self, name: str, seed: int) -> Task:
        suite, _, own = name.partition("/")
        return self.members[suite].task(own, seed)

    def pool(self, pages: int, browsers: int = 1) -> AbstractAsyncContextManager[dict[str, Any]]:
        """One of each suite, in which pages are opened when they are needed."""

        @asynccontextmanager
        async def opened() -> AsyncIterator[dict[str, Any]]:
            async with AsyncExitStack() as stack:
                members = self.members.items()
                yield {name: await stack.enter_async_context(suite.pool(pages, browsers)) for name, suite in members}

        return opened()

    def page_of(self, task: Task) -> Hashable:
        return task.benchmark, self._of(task).page_of(task)

    @asynccontextmanager
    async def begin(self, pool: dict[str, Any], task: Task) -> AsyncIterator[Any]:
        async with self._of(task).begin(pool[task.benchmark or ""], task) as env:
            yield env

    async def judge(self, env: Any, task: Task, ending: Ending, rule: str) -> Ending:
        own = self._of(task)
        return await own.judge(env, task, ending, own.rule)

    def _of(self, task: Task) -> Suite[Any]:
        return self.members[task.benchmark or ""]
