"""The smallest task in a real browser: a page in three parts, of which one is to be clicked."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from holotron.env.browser.launch import LaunchOptions
from holotron.env.browser.local_pool import EnvironmentPool
from holotron.env.environment import Observation, TaskStatus
from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo
from holotron.suites.pages.environment import ARGUMENTS, CONTEXT, LONGEST_CALL, PageEnvironment
from holotron.suites.pages.task import PageTask
from holotron.suites.suite import Suite

PARTS = ("left", "middle", "right")
SIZE = (120, 80)
PAGE = """<body style="margin:0;display:flex;height:100vh"><script>window.clicked = ""</script>
<button id="left" style="flex:1;background:red" onclick="clicked = id">left</button>
<button id="middle" style="flex:1;background:white" onclick="clicked = id">middle</button>
<button id="right" style="flex:1;background:blue" onclick="clicked = id">right</button></body>"""


class ClickPage(PageEnvironment):
    async def reset(self, task: Task, seed: int) -> Observation:
        self._wanted = task.name or ""
        await self.show(PageTask(f"Click {self._wanted}", PAGE, SIZE, self._wanted, seed, False))
        return await self.observe()

    async def status(self) -> TaskStatus:
        clicked = await self.evaluate("clicked")
        return TaskStatus(True, float(clicked == self._wanted), clicked == self._wanted) if clicked else TaskStatus()


class ClickPageSuite(Suite[ClickPage]):
    name = "click-page"
    kinds = ("click",)
    max_steps = 1

    @property
    def environment(self) -> EnvironmentInfo:
        return EnvironmentInfo(name="click-page", viewport=SIZE)

    def names(self, split: str | None = None) -> tuple[str, ...]:
        return PARTS

    def pool(self, pages: int, browsers: int = 1) -> AbstractAsyncContextManager[Any]:
        launch = LaunchOptions(arguments=ARGUMENTS)
        return EnvironmentPool(
            ClickPage, pages, launch=launch, context=CONTEXT, browsers=browsers, seconds=LONGEST_CALL
        )
