"""The HTTP application, put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import Response

from holotron import __version__
from holotron.server import admin, chat, completions, session_routes, text_routes
from holotron.server.auth import Admission, Keys
from holotron.server.engine_client import EngineClient, EngineDown, EngineRefused
from holotron.server.errors import add_handlers
from holotron.server.fetch import Fetcher, FetchPolicy
from holotron.server.images import ImageReader
from holotron.server.loading import load_texts
from holotron.server.metrics import Metrics
from holotron.server.middleware import Envelope
from holotron.server.sessions import SessionTable
from holotron.server.settings import ServerSettings
from holotron.server.state import State
from holotron.server.streaming import ClientGone
from holotron.server.tools import detect_dialect

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
ABOUT = """Chat completions as OpenAI clients know them, and sessions beside them: a session goes on where its last
answer ended, forks, rolls back, and computes no token twice."""


def create_app(settings: ServerSettings) -> FastAPI:
    """An application that starts its engine when it is started, and ends it with itself."""
    metrics = Metrics(settings.model_name)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.server = await _assemble(settings, metrics, stack)
            yield

    app = FastAPI(title="Holotron", version=__version__, description=ABOUT, lifespan=lifespan)
    for part in (chat, completions, session_routes, text_routes, admin):
        app.include_router(part.router)
    add_handlers(app)
    app.add_exception_handler(ClientGone, _nobody)
    app.add_middleware(Envelope, metrics=metrics, max_body_bytes=settings.max_body_bytes)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.cors_origins), allow_methods=["*"], allow_headers=["*"]
        )
    return app


async def _assemble(settings: ServerSettings, metrics: Metrics, stack: AsyncExitStack) -> State:
    texts = await asyncio.to_thread(load_texts, settings.engine)
    sessions = SessionTable(settings)
    client = EngineClient(settings.engine, on_loss=sessions.clear)
    await client.start()
    stack.push_async_callback(client.close)
    policy = FetchPolicy(allowed_hosts=settings.image_hosts, max_bytes=settings.max_image_bytes)
    fetcher = await stack.enter_async_context(Fetcher(policy))
    state = State(
        settings=settings,
        texts=texts,
        client=client,
        keys=Keys(settings),
        admission=Admission(settings),
        sessions=sessions,
        images=ImageReader(settings, fetcher),
        metrics=metrics,
        dialect=detect_dialect(texts.template.source),
    )
    metrics.watch(client, state.admission, sessions)
    sweeping = asyncio.create_task(_sweep(state))
    stack.callback(sweeping.cancel)
    return state


async def _sweep(state: State) -> None:
    """Close sessions that nobody has used for as long as they asked to be kept."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        for session in state.sessions.expired():
            with suppress(EngineDown, EngineRefused):
                await session_routes.close(state, session)


async def _nobody(_: Request, __: Exception) -> Response:
    return Response(status_code=499)  # as nginx calls it; nobody reads it
