"""A session that moves from one engine to another, beside computing it again there.

Both engines are of one model on one device, in one process; the bytes go over TCP on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import statistics
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holotron.bench.measuring import random_tokens, time_when_idle
from holotron.bench.report import machine, print_figures
from holotron.engine.build import EngineOptions, build_engine, load_model
from holotron.engine.engine import Engine
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session import Session
from holotron.engine.socket_transfer import receive_over, send_over

ANSWER = SamplingParams(max_tokens=16, temperature=0.0, ignore_eos=True)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a move and of its parts: to host memory, over there, back to the device; and of computing it again."""
    engine = EngineOptions(
        model=options.model,
        random=options.random,
        device=options.device,
        state_dtype="float32" if options.device == "cpu" else options.state_type,
        memory_gib=options.memory,
        host_gib=options.host,
        tokens_per_session=options.tokens + 64,
        sessions=4,
        max_context=options.tokens + 1024,
        extrapolate=True,
        tokenizer=False,
    )
    model = load_model(engine)
    with build_engine(engine, model) as home, build_engine(engine, model) as away:
        figures = asyncio.run(_measure(home, away, options.tokens, options.repeats))
    report = machine() | {"model": model.config.name, "state": engine.state_dtype} | figures
    if not options.json:
        print_figures(report, digits=4)
    return report


async def _measure(home: Engine, away: Engine, tokens: int, repeats: int) -> dict[str, Any]:
    prompt = random_tokens(home.model.config, tokens, random.Random(0))
    session, _ = await _computed(home, prompt)  # compiles what is compiled
    expected = await session.generate([1], ANSWER)
    session.close()
    computing = []
    for engine in (home, away):
        session, seconds = await _computed(engine, prompt)
        computing.append(seconds)
        session.close()
    session, _ = await _computed(home, prompt)
    parking, resuming = [], []
    for _ in range(repeats):
        began = time_when_idle()
        session.park()
        parked = time_when_idle()
        session.resume()
        parking.append(parked - began)
        resuming.append(time_when_idle() - parked)
    moving: list[float] = []
    carrying: list[float] = []
    sent = 0
    engines = [home, away]
    for number in range(4 * repeats):
        if number == 2 * repeats:
            session.park()  # from here on it stays in host memory: what is left is the way between the engines
        began = time_when_idle()
        sent = await asyncio.to_thread(_move, engines[0], engines[1], session.id)
        (moving if number < 2 * repeats else carrying).append(time_when_idle() - began)
        engines.reverse()
        session = engines[0].session(session.id)
    answer = await session.generate([1], ANSWER)
    move, again = statistics.median(moving[2:]), statistics.median(computing)
    return {
        "tokens": tokens,
        "bytes": sent,
        "first_move_seconds": moving[0],  # takes host memory on the other side
        "move_seconds": move,
        "slowest_move_seconds": max(moving[2:]),
        "park_seconds": statistics.median(parking),
        "carry_seconds": statistics.median(carrying),
        "resume_seconds": statistics.median(resuming),
        "compute_seconds": again,
        "times_faster_than_computing": again / move,
        "same_tokens": answer.token_ids == expected.token_ids,
        "recomputed_tokens": sum(engine.counters()["recomputed_tokens"] for engine in (home, away)),
    }


async def _computed(engine: Engine, prompt: list[int]) -> tuple[Session, float]:
    session = engine.open_session()
    session.append(prompt)
    began = time_when_idle()
    await session.compute()
    return session, time_when_idle() - began


def _move(home: Engine, away: Engine, session_id: str) -> int:
    """Send a session over loopback; its bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as receiver:
        arriving = receiver.submit(receive_over, lambda: listener.accept()[0], away)
        sent = send_over(lambda: socket.create_connection(listener.getsockname()), home, session_id)
        arriving.result()
    return sent
