"""An application as an environment: a browser context of its own, and a server that nobody else uses meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from holotron.actions.action import Action
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.environment import Observation
from holotron.env.errors import ActionFailed, InfrastructureError, Refused
from holotron.env.safety.policy import SafetyPolicy
from holotron.env.task import Task
from holotron.suites.webapps.catalog import AppTask
from holotron.suites.webapps.server import AppServer, ServerFailed
from holotron.suites.webapps.verifier import Verification, verify

# Applications ask for these fonts; without them they use those of the machine.
FONTS = ("https://fonts.googleapis.com/*", "https://fonts.gstatic.com/*")


class AppEnvironment(BrowserEnv):
    """A task of an application, from the state that its server begins with. `AppPool.begin` opens it."""

    server: AppServer
    app_task: AppTask

    async def reset(self, task: Task, seed: int = 0) -> Observation:
        """The seed changes nothing: an application begins with the same data each time."""
        try:
            return await super().reset(task.model_copy(update={"url": self.server.address}))
        except (ActionFailed, Refused) as error:  # not the policy's fault
            self.server.check()
            raise InfrastructureError(f"{self.app_task.app.name} cannot be opened: {error}") from error

    async def observe(self) -> Observation:
        self.server.check()
        return await super().observe()

    async def act(self, action: Action) -> None:
        await super().act(action)
        self.server.check()

    async def judge(self) -> Verification:
        """What the task's verifier says of the state as it is now."""
        self.server.check()
        try:
            return await verify(self.app_task.verifier, self.server.address)
        except InfrastructureError:
            self.server.check()  # which would be why
            raise


class AppPool:
    """Browsers and servers for so many episodes at once. A server that is not used waits for the next task of its
    application, as long as there are no more of them than episodes."""

    def __init__(self, episodes: int, browsers: int, size: tuple[int, int]) -> None:
        self._browsers, self._size, self._most = Browsers(browsers), size, episodes
        self._idle: list[AppServer] = []
        self._numbers = count()
        self._folder = TemporaryDirectory(prefix="holotron-webapps-")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._browsers.close()
        finally:
            while self._idle:
                await self._idle.pop().stop()
            self._folder.cleanup()

    @asynccontextmanager
    async def begin(self, app_task: AppTask, task: Task) -> AsyncIterator[AppEnvironment]:
        """The task in a browser context of its own, with a server to itself."""
        async with self._server(app_task.app) as server:
            safety = SafetyPolicy([server.address])
            options = EnvOptions(*self._size, safety=safety, stubbed=FONTS)
            async with await AppEnvironment.open(self._browsers, options) as env:
                env.server, env.app_task = server, app_task
                await env.reset(task)
                yield env

    @asynccontextmanager
    async def _server(self, app: Path) -> AsyncIterator[AppServer]:
        server = await self._fresh(app)
        try:
            yield server
        finally:
            if server.alive:
                self._idle.append(server)
            else:
                await server.stop()
            while len(self._idle) > self._most:
                await self._idle.pop(0).stop()

    async def _fresh(self, app: Path) -> AppServer:
        """A server of the application in the state that it begins with; if none is idle, a new one."""
        while (server := next((idle for idle in self._idle if idle.app == app), None)) is not None:
            self._idle.remove(server)  # before the first await: another task may look for one, too
            with suppress(ServerFailed):  # it died since its last task, which is no reason to lose this one
                return await _reset(server)
        return await _reset(await AppServer.start(app, Path(self._folder.name) / str(next(self._numbers))))


async def _reset(server: AppServer) -> AppServer:
    try:
        await server.reset()
        return server
    except BaseException:
        await server.stop()
        raise
