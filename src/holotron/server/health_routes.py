"""What watches the server reads: /health, /metrics and /version; and where to go from /. They are open to all."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from holotron import __version__
from holotron.engine.sampling_params import SamplingParams
from holotron.server import messages as m
from holotron.server.auth import Caller
from holotron.server.engine_client import EngineDown, EngineRefused
from holotron.server.errors import ApiError
from holotron.server.response_models import ERRORS, Health, Load
from holotron.server.state import ServerState, StateDep

router = APIRouter()
DEEP_SECONDS = 10.0
SLOW = ApiError(503, f"the engine has computed no token in {DEEP_SECONDS:.0f} seconds", code="engine_slow", retry=5)
WATCHER = Caller("health")


PLACES = {"docs": "/docs", "health": "/health", "metrics": "/metrics", "models": "/v1/models", "openai": "/v1"}


@router.get("/")
async def index(state: StateDep) -> JSONResponse:
    """What answers here, and where."""
    viewer = {"episodes": "/view/"} if state.settings.episodes is not None else {}
    return JSONResponse({"name": "holotron", "version": __version__, **PLACES, **viewer})


@router.get("/health", response_model=Health, responses=ERRORS)
async def health(state: StateDep, deep: bool = False) -> Any:
    """Whether the engine is there; with `deep`, whether it can compute a token."""
    state.client.usable()
    if not deep:
        return {"status": "ok"}
    # All that ask at the same time are told the same: nobody needs a key for it, so it must not add up.
    if state.deep_check is None or state.deep_check.done():
        state.deep_check = asyncio.create_task(_compute_a_token(state))
    return {"status": "ok", "seconds": await asyncio.shield(state.deep_check)}


async def _compute_a_token(state: ServerState) -> float:
    """The seconds that a session of one token takes; it is closed again. It counts among the turns under way."""
    began = time.monotonic()
    start = state.texts.config.bos_token_id or 0
    with state.admission.enter(WATCHER):
        try:
            async with asyncio.timeout(DEEP_SECONDS):
                session = await state.client.call("open")
        except TimeoutError:
            raise SLOW from None
        one_token = m.Generate((start,), SamplingParams(max_tokens=1, temperature=0.0), session=session)
        generation = state.client.generate(one_token)
        try:
            async with asyncio.timeout(DEEP_SECONDS):
                await generation.started()
                async for _ in generation:
                    pass
        except TimeoutError:
            raise SLOW from None
        finally:
            generation.cancel()
            with suppress(EngineDown, EngineRefused):
                await state.client.call("close", session)
    return round(time.monotonic() - began, 4)


@router.get("/metrics", response_class=Response)
async def metrics(state: StateDep) -> Response:
    return Response(state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/load", response_model=Load)
async def load(state: StateDep) -> Any:
    """How many turns are under way."""
    return {"server_load": state.admission.total}


@router.get("/version")
async def version() -> JSONResponse:
    return JSONResponse({"version": __version__})
