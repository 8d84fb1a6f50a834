"""What watches the server reads: /health, /metrics and /version. They are open to all."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from holotron import __version__
from holotron.engine.sampling import SamplingParams
from holotron.server.answers import ERRORS, Health
from holotron.server.errors import ApiError
from holotron.server.state import state_of

router = APIRouter()
DEEP_SECONDS = 10.0


@router.get("/health", response_model=Health, responses=ERRORS)
async def health(http: Request, deep: bool = False) -> Any:
    """Whether the engine is there; with `deep`, whether it can compute a token."""
    state = state_of(http)
    if state.client.ready is None:
        raise ApiError(503, "the engine is being started", code="engine_unavailable", retry=2)
    if not deep:
        state.client.check()
        return {"status": "ok"}
    began = time.monotonic()
    start = state.texts.config.bos_token_id or 0
    sampling = SamplingParams(max_tokens=1, temperature=0.0)
    generation = state.client.generate((start,), (), sampling, pool="health")
    try:
        async with asyncio.timeout(DEEP_SECONDS):
            await generation.started()
            async for _ in generation:
                pass
    finally:
        generation.cancel()
    return {"status": "ok", "seconds": round(time.monotonic() - began, 4)}


@router.get("/metrics", response_class=Response)
async def metrics(http: Request) -> Response:
    return Response(state_of(http).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/version")
async def version() -> JSONResponse:
    return JSONResponse({"version": __version__})
