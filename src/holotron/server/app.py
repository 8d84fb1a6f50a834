"""The HTTP application, put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from holotron import __version__
from holotron.episodes.store import EpisodeStore
from holotron.server import (
    admin,
    completion_routes,
    health_routes,
    message_routes,
    responses,
    session_routes,
    sglang_routes,
    text_routes,
    trl_routes,
    vllm_routes,
)
from holotron.server import messages as m
from holotron.server.auth import Admission, Hosts, Keys
from holotron.server.bodies import BodyReader
from holotron.server.engine_client import EngineClient, EngineDown, EngineRefused
from holotron.server.engine_control import EngineControl
from holotron.server.engine_service import EngineService
from holotron.server.errors import add_handlers
from holotron.server.fetch import Fetcher, FetchPolicy
from holotron.server.images import ImageReader
from holotron.server.loading import Texts
from holotron.server.metrics import Metrics
from holotron.server.middleware import RequestMiddleware
from holotron.server.reasoning import detect_reasoning
from holotron.server.retries import RetryMiddleware
from holotron.server.sessions import SessionTable, restored
from holotron.server.settings import ServerSettings
from holotron.server.state import ServerState
from holotron.server.streaming import ClientGone
from holotron.server.tools import detect_dialect
from holotron.web.app import create_app as view_episodes
from holotron.web.catalog import Catalog

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReplicaSet:
    """Several engines behind one server: how to reach them, and the routes that are about them."""

    connect: Callable[[m.Start], EngineService]
    router: APIRouter


SWEEP_SECONDS = 1.0
WRITERS = 2
LAG_SECONDS = 0.05
ABOUT = """Chat completions as OpenAI clients know them, and sessions beside them: a session goes on where its last
answer ended, forks, rolls back, and computes no token twice."""


class Application(FastAPI):
    """Publishes what it does: FastAPI would promise a 422 where this server answers 400."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            schema = super().openapi()
            for operation in (operation for path in schema["paths"].values() for operation in path.values()):
                operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                schema["components"]["schemas"].pop(name, None)
        return super().openapi()


def create_app(
    settings: ServerSettings,
    texts: Texts,
    on_failure: Callable[[str], None] = lambda _: None,
    on_ready: Callable[[], None] = lambda: None,
    replicas: ReplicaSet | None = None,
) -> FastAPI:
    """An application that starts its engine when it is started, and ends it with itself.

    It answers from the beginning, with 503 until the engine has its model. on_ready: called when it has it, also after
    a crash. on_failure: called if it cannot have it. replicas: several engines in place of one.
    """
    metrics, keys = Metrics(settings.model_name), Keys(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.server = state = await _assemble(settings, texts, metrics, keys, stack, replicas)
            state.client.start(on_failure, on_ready)
            yield

    app = Application(title="Holotron", version=__version__, description=ABOUT, lifespan=lifespan)
    parts = (completion_routes, responses, message_routes, session_routes, text_routes, health_routes, admin)
    for part in parts:
        app.include_router(part.router)
    if replicas is not None:
        app.include_router(replicas.router)
    for part in (sglang_routes, vllm_routes, trl_routes):  # dialects of trainers, whose schema is theirs
        app.include_router(part.router, include_in_schema=False)
    add_handlers(app, {getattr(route, "path", "") for part in parts for route in part.router.routes})
    for gone in (ClientGone, ClientDisconnect):
        app.add_exception_handler(gone, _client_gone)
    app.add_middleware(RetryMiddleware, keys=keys)
    app.add_middleware(
        RequestMiddleware, metrics=metrics, keys=keys, hosts=Hosts(settings), max_body_bytes=settings.max_body_bytes
    )
    if settings.episodes is not None:
        app.mount("/view", view_episodes(Catalog(EpisodeStore(settings.episodes))))
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.cors_origins), allow_methods=["*"], allow_headers=["*"]
        )
    return app


async def _assemble(
    settings: ServerSettings,
    texts: Texts,
    metrics: Metrics,
    keys: Keys,
    stack: AsyncExitStack,
    replicas: ReplicaSet | None,
) -> ServerState:
    sessions = SessionTable(settings)
    start = m.Start(settings.engine, settings.kept_seconds, settings.kept_most, settings.transfer_seconds)

    def forget() -> None:
        sessions.clear()
        control.reset()

    client: EngineService
    if replicas is None:
        client = EngineClient(start, on_loss=forget, log_format=settings.log_format)
    else:
        client = replicas.connect(start)
    for kept in client.kept_sessions():
        sessions.add(restored(kept, texts.prompts))
    sessions.on_add = lambda session: client.remember(session.id, session.about)
    control = EngineControl(client)
    stack.callback(client.weights.clear)
    stack.push_async_callback(client.close)
    policy = FetchPolicy(allowed_hosts=settings.image_hosts, max_bytes=settings.max_image_bytes)
    fetcher = await stack.enter_async_context(aclosing(Fetcher(policy)))
    bodies = await stack.enter_async_context(aclosing(BodyReader()))
    writers = ThreadPoolExecutor(WRITERS, "holotron-writer")
    stack.callback(writers.shutdown, wait=False, cancel_futures=True)
    state = ServerState(
        settings=settings,
        texts=texts,
        client=client,
        control=control,
        keys=keys,
        admission=Admission(settings),
        sessions=sessions,
        images=ImageReader(settings, fetcher, writers),
        bodies=bodies,
        writers=writers,
        metrics=metrics,
        dialect=detect_dialect(texts.template.source),
        reasoning=detect_reasoning(texts.template.source),
    )
    metrics.watch(client, state.admission, sessions)
    for upkeep in (_sweep(state), _watch_lag(metrics)):
        stack.callback(asyncio.create_task(upkeep).cancel)
    return state


async def _sweep(state: ServerState) -> None:
    """Close sessions that were not used for as long as they asked to be kept."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        for session in state.sessions.expired():
            with suppress(EngineDown, EngineRefused):
                await session_routes.close(state, session)


async def _watch_lag(metrics: Metrics) -> None:
    """Note how much later than it should the event loop gets to something."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_SECONDS
        await asyncio.sleep(LAG_SECONDS)
        metrics.loop_lag.observe(max(0.0, loop.time() - due))


async def _client_gone(_: Request, __: Exception) -> Response:
    return Response(status_code=499)  # as nginx calls it: for the log alone
