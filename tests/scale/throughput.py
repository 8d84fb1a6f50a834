"""What the router carries: engines that sleep instead of computing, one, two and four of them.

    python -m tests.scale.throughput --out benchmarks/results/replica-throughput.json

Turns per second over HTTP by the number of replicas; what a turn with a 2 MB screenshot takes through the router beyond
what it takes to an engine alone; and how many sessions can be open.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from holotron.bench.measuring import quantile
from holotron.bench.report import machine
from holotron.engine.options import EngineOptions
from holotron.engine.sampling_params import SamplingParams
from holotron.scale.journal import MEMORY_BYTES
from holotron.scale.replica_routes import router
from holotron.scale.router import ReplicaRouter
from holotron.server import messages as m
from holotron.server.app import ReplicaSet
from holotron.server.channel import Channel
from holotron.server.engine_client import EngineClient
from holotron.server.engine_service import EngineService
from holotron.server.memory import reuse_freed_memory
from tests.process_memory import process_memory
from tests.server.live import Live, serving, write_checkpoint

SCREEN_BYTES = 2 * 2**20
ACTING_SECONDS = 0.02  # of an agent between two turns


@dataclass
class SleepingProcess:
    channel: Channel
    process: asyncio.subprocess.Process
    host: str = "127.0.0.1"

    @classmethod
    async def start(cls, seconds: float) -> SleepingProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            words = (sys.executable, "-m", "tests.scale.sleeping_engine", str(theirs.fileno()), str(seconds))
            process = await asyncio.create_subprocess_exec(*words, pass_fds=[theirs.fileno()])
        return cls(await Channel.open(ours), process)

    @property
    def pid(self) -> int:
        return self.process.pid

    async def end(self, loading: bool) -> int | None:
        self.channel.close()
        return await self.process.wait()


def sleeping(seconds: float) -> Callable[..., EngineClient]:
    def new_client(name: str, start: m.Start, on_loss: Callable[[], None]) -> EngineClient:
        return EngineClient(start, on_loss, launch=lambda: SleepingProcess.start(seconds))

    return new_client


def replicas(count: int, seconds: float) -> ReplicaSet:
    return ReplicaSet(lambda start: ReplicaRouter(start, count, sleeping(seconds)), router)


async def turns_per_second(live: Live, clients: int, seconds: float) -> float:
    """Sessions in closed loop, without a pause."""
    done = 0
    async with httpx.AsyncClient(base_url=live.url, timeout=120, trust_env=False, verify=False) as http:

        async def one(until: float) -> None:
            nonlocal done
            session = (await http.post("/v1/sessions")).json()["id"]
            body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
            while time.monotonic() < until:
                (await http.post(f"/v1/sessions/{session}/turns", json=body)).raise_for_status()
                done += 1

        began = time.monotonic()
        await asyncio.gather(*(one(began + seconds) for _ in range(clients)))
        return done / (time.monotonic() - began)


async def open_sessions(live: Live, count: int) -> dict[str, Any]:
    """So many at once, each with a turn."""
    before = process_memory(os.getpid())
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(base_url=live.url, timeout=300, trust_env=False, verify=False, limits=limits) as http:

        async def one() -> str:
            session: str = (await http.post("/v1/sessions")).raise_for_status().json()["id"]
            body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
            (await http.post(f"/v1/sessions/{session}/turns", json=body)).raise_for_status()
            return session

        began = time.monotonic()
        sessions = await asyncio.gather(*(one() for _ in range(count)))
        seconds = time.monotonic() - began
        assert isinstance(live.state.client, ReplicaRouter)
        by_replica = [len(replica.sessions) for replica in live.state.client.directory.replicas.values()]
        memory = process_memory(os.getpid()) - before
    return {
        "open_sessions": len(set(sessions)),
        "open_sessions_by_replica": by_replica,
        "opened_with_a_turn_each_in_seconds": seconds,
        "kib_per_session_in_the_server": memory / count / 1024,
    }


async def overhead(turns: int) -> dict[str, Any]:
    """The same turns to an engine alone and through the router, in turn: what the second take longer.

    First the journal's memory is filled, so that from then on every turn has an image moved to disk.
    """
    reuse_freed_memory()  # as `holotron serve` does
    start = m.Start(EngineOptions(), 600, 64)
    alone = EngineClient(start, launch=lambda: SleepingProcess.start(0.0))
    routed = ReplicaRouter(start, 4, sleeping(0.0))
    services: dict[str, EngineService] = {"alone": alone, "routed": routed}
    sessions: dict[str, str] = {}
    for name, service in services.items():
        ready = asyncio.Event()
        service.start(lambda reason: print(reason), ready.set)
        await ready.wait()
        sessions[name] = await service.call("open")
    image = random.Random(0).randbytes(SCREEN_BYTES)
    seconds: dict[str, list[float]] = {name: [] for name in services}
    sampling = SamplingParams(max_tokens=1, temperature=0.0)
    unmeasured = 20 + MEMORY_BYTES // SCREEN_BYTES
    for number in range(unmeasured + turns):
        for name, service in services.items():
            given = image[:-8] + number.to_bytes(8)  # another screenshot each time
            wanted = m.Generate(tuple(range(1500)), sampling, ((3, given),), session=sessions[name])
            began = time.perf_counter()
            generation = service.generate(wanted)
            await generation.started()
            async for _ in generation:
                pass
            generation.cancel()
            if number >= unmeasured:
                seconds[name].append(time.perf_counter() - began)
            await asyncio.sleep(ACTING_SECONDS)
    for service in services.values():
        await service.close()
    told: dict[str, Any] = {"screenshot_bytes": SCREEN_BYTES, "turns_each": turns, "acting_seconds": ACTING_SECONDS}
    told["images_moved_to_disk"] = routed.images._spilled
    for label, share in (("p50", 0.5), ("p99", 0.99)):
        found = {name: 1000 * quantile(values, share) for name, values in seconds.items()}
        told |= {f"{name}_{label}_milliseconds": value for name, value in found.items()}
        told[f"router_adds_{label}_milliseconds"] = found["routed"] - found["alone"]
    return told


def run(given: argparse.Namespace) -> dict[str, Any]:
    report: dict[str, Any] = machine() | {"command": "python -m tests.scale.throughput " + " ".join(sys.argv[1:])}
    report |= {"cores": os.cpu_count(), "a_turn_sleeps_seconds": given.sleep}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = write_checkpoint(Path(folder) / "tiny")
        rates = {}
        for count in (1, 2, 4):
            with serving(checkpoint, replicas=replicas(count, given.sleep)) as live:
                while len(live.state.client.directory.up()) < count:  # type: ignore[attr-defined]
                    time.sleep(0.05)
                rates[count] = asyncio.run(turns_per_second(live, 8 * count, given.seconds))
        report["turns_per_second"] = rates
        report["four_to_one"] = rates[4] / rates[1]
        with serving(checkpoint, replicas=replicas(4, 0.0)) as live:
            while len(live.state.client.directory.up()) < 4:  # type: ignore[attr-defined]
                time.sleep(0.05)
            report |= asyncio.run(open_sessions(live, given.open))
    return report | asyncio.run(overhead(given.turns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sleep", type=float, default=0.1, help="seconds that a turn takes an engine")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--open", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    report = run(given)
    if given.out:
        given.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
