"""What watches the server reads: /health, /metrics and /version. They are open to all."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from holotron import __version__
from holotron.engine.sampling import SamplingParams
from holotron.server import messages as m
from holotron.server.response_models import ERRORS, Health
from holotron.server.state import StateDep

router = APIRouter()
DEEP_SECONDS = 10.0


@router.get("/health", response_model=Health, responses=ERRORS)
async def health(state: StateDep, deep: bool = False) -> Any:
    """Whether the engine is there; with `deep`, whether it can compute a token."""
    state.client.connected()
    if not deep:
        return {"status": "ok"}
    began = time.monotonic()
    start = state.texts.config.bos_token_id or 0
    one_token = m.Generate((start,), SamplingParams(max_tokens=1, temperature=0.0), pool="health")
    generation = state.client.generate(one_token)
    try:
        async with asyncio.timeout(DEEP_SECONDS):
            await generation.started()
            async for _ in generation:
                pass
    finally:
        generation.cancel()
    return {"status": "ok", "seconds": round(time.monotonic() - began, 4)}


@router.get("/metrics", response_class=Response)
async def metrics(state: StateDep) -> Response:
    return Response(state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/version")
async def version() -> JSONResponse:
    return JSONResponse({"version": __version__})
