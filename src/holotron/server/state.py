"""What the routes share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from holotron.agent.policy_format import told
from holotron.server.auth import Admission, Caller, Keys
from holotron.server.bodies import BodyReader
from holotron.server.engine_control import EngineControl
from holotron.server.engine_service import EngineService
from holotron.server.errors import ApiError
from holotron.server.images import ImageReader
from holotron.server.loading import Texts
from holotron.server.metrics import Metrics
from holotron.server.reasoning import ReasoningDialect
from holotron.server.running import RunningAnswers
from holotron.server.sessions import SessionTable
from holotron.server.settings import ServerSettings
from holotron.server.stored_responses import StoredResponses
from holotron.server.tools import ToolDialect

Result = TypeVar("Result")


@dataclass
class ServerState:
    """One server."""

    settings: ServerSettings
    texts: Texts
    client: EngineService
    control: EngineControl
    keys: Keys
    admission: Admission
    sessions: SessionTable
    images: ImageReader
    bodies: BodyReader
    writers: Executor  # prompts are written here, a few at a time
    metrics: Metrics
    dialect: ToolDialect | None
    reasoning: ReasoningDialect | None
    deep_check: asyncio.Task[float] | None = None  # of /health, while one runs
    running: RunningAnswers = field(default_factory=RunningAnswers)
    responses: StoredResponses = field(default_factory=StoredResponses)

    @property
    def max_context(self) -> int:
        return self.client.ready.max_context if self.client.ready else self.settings.engine.max_context

    @property
    def policy_format(self) -> dict[str, Any] | None:
        """How the model is asked as an agent, for clients to honour; None where its checkpoint does not say."""
        return None if self.texts.policy_format is None else told(self.texts.policy_format)

    async def off_loop(self, work: Callable[[], Result]) -> Result:
        """The result of work that takes a while, done by one of a few threads: many would starve the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.writers, work)

    def check_model(self, name: str | None) -> str | None:
        """The adapter that a request means by its model, None for the model alone; 404 if it is not served here."""
        adapters = self.client.adapters
        if name in adapters:
            return name
        if name is not None and name not in (self.settings.model_name, self.settings.engine.model):
            served = ", ".join(map(repr, (self.settings.model_name, *adapters)))
            message = f"the model {name[:128]!r} is not served here; there is {served}"
            raise ApiError(404, message, param="model", code="model_not_found")
        return None


# Dependencies of routes. Async, or each would cost a thread every time.


async def state_of(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


StateDep = Annotated[ServerState, Depends(state_of)]


async def caller_of(request: Request, state: StateDep) -> Caller:
    """The holder of a key; 401 without one."""
    caller = state.keys.caller(request)
    request.state.caller = caller.name
    return caller


async def admin_of(request: Request, state: StateDep) -> Caller:
    caller = state.keys.admin(request)
    request.state.caller = caller.name
    return caller


CallerDep = Annotated[Caller, Depends(caller_of)]
