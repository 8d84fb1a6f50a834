"""Many clients against one server for minutes: nothing may fail, leak or slow down.

Every client lives the life of an agent: opens a session, takes turns (some streamed, some with images, some left in
the middle), forks, deletes it, and begins again; others send whole histories without a session. Between two requests
it may think for a while, as one does that acts on what it was told.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from holotron.bench.measuring import quantile
from holotron.bench.report import machine, write_json
from holotron.bench.screens import png
from tests.process_memory import process_memory
from tests.tiny_checkpoint import write_checkpoint

CHAT = "/v1/chat/completions"
SAMPLES = 60  # of memory, over the whole time
SETTLING = 10.0  # seconds that a server has to be done with clients that are gone
# What must be zero then, by its name in the report.
UNDER_WAY = {
    "open_sessions_after": "holotron:open_sessions",
    "turns_after": "holotron:turns_admitted",
    "running_after": "vllm:num_requests_running",
}


@dataclass
class Record:
    """What the clients saw."""

    latencies: dict[str, list[float]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    tokens: int = 0

    def add(self, kind: str, seconds: float) -> None:
        self.latencies.setdefault(kind, []).append(seconds)
        self.counts[kind] += 1


class Client:
    """One agent."""

    def __init__(self, number: int, url: str, record: Record, pictures: list[str], think: float) -> None:
        # A connection of its own: one pool for all would be what is measured.
        self._http = httpx.AsyncClient(base_url=url, timeout=120, trust_env=False, verify=False)
        self._record = record
        self._draw = random.Random(number)
        self._pictures = pictures
        self._think_seconds = think

    async def live(self, until: float) -> None:
        await self._think(until)
        while time.monotonic() < until:
            try:
                await (self._in_a_session(until) if self._draw.random() < 0.7 else self._without(until))
            except Exception as error:
                self._record.errors[f"{type(error).__name__}: {error}"[:200]] += 1
                await asyncio.sleep(0.1)
        await self._http.aclose()

    async def _in_a_session(self, until: float) -> None:
        session = (await self._post("open", "/v1/sessions", {}))["id"]
        for turn in range(self._draw.randint(1, 6)):
            if time.monotonic() > until:
                break
            body = {"messages": [self._message(turn)], "session_id": session, **self._options()}
            kind = self._draw.random()
            if kind < 0.15:
                await self._leave_early(body)
            elif kind < 0.5:
                await self._stream(body)
            else:
                await self._chat("turn", body)
            await self._think(until)
        if self._draw.random() < 0.2:
            forks = (await self._post("fork", f"/v1/sessions/{session}/fork", {"n": 2}))["data"]
            for fork in forks:
                await self._chat("turn", {"messages": [self._message(9)], "session_id": fork["id"], **self._options()})
                await self._delete(fork["id"])
        await self._delete(session)

    async def _without(self, until: float) -> None:
        messages = [{"role": "system", "content": f"You are client {self._draw.random()}."}]
        for turn in range(self._draw.randint(1, 4)):
            if time.monotonic() > until:
                return
            messages.append(self._message(turn))
            answer = await self._chat("stateless", {"messages": messages, **self._options()})
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"] or ""})
            await self._think(until)

    async def _think(self, until: float) -> None:
        """Up to twice as long as was asked for, and never beyond the end."""
        await asyncio.sleep(max(0.0, min(until - time.monotonic(), 2 * self._think_seconds * self._draw.random())))

    async def _chat(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._post(kind, CHAT, body)
        self._record.tokens += answer["usage"]["completion_tokens"]
        return answer

    async def _stream(self, body: dict[str, Any]) -> None:
        began = time.monotonic()
        first = None
        async with self._http.stream("POST", CHAT, json=body | {"stream": True}) as response:
            _check(response.status_code, "stream")
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    first = first or time.monotonic() - began
                    if '"error"' in line[:12]:
                        raise RuntimeError(f"stream: {line[:150]}")
        self._record.add("first token", first or 0.0)
        self._record.add("stream", time.monotonic() - began)

    async def _leave_early(self, body: dict[str, Any]) -> None:
        async with self._http.stream("POST", CHAT, json=body | {"stream": True, "max_tokens": 200}) as response:
            _check(response.status_code, "stream that is left")
            async for _ in response.aiter_lines():
                if self._draw.random() < 0.3:
                    break
        self._record.counts["left early"] += 1
        # The server hears of it a moment later, on a busy machine a long one; until then the session is at work.
        async with asyncio.timeout(60):
            while (await self._http.get(f"/v1/sessions/{body['session_id']}")).json()["busy"]:
                await asyncio.sleep(0.05)

    async def _post(self, kind: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        began = time.monotonic()
        response = await self._http.post(path, json=body)
        _check(response.status_code, f"{kind}: {response.text[:120]}")
        self._record.add(kind, time.monotonic() - began)
        answer: dict[str, Any] = response.json()
        return answer

    async def _delete(self, session: str) -> None:
        response = await self._http.delete(f"/v1/sessions/{session}")
        _check(response.status_code, f"delete: {response.text[:120]}")

    def _message(self, turn: int) -> dict[str, Any]:
        text = f"Turn {turn}: " + "word " * self._draw.randint(1, 20)
        if self._pictures and self._draw.random() < 0.1:
            url = {"url": self._draw.choice(self._pictures)}
            return {
                "role": "user",
                "content": [{"type": "text", "text": text}, {"type": "image_url", "image_url": url}],
            }
        return {"role": "user", "content": text}

    def _options(self) -> dict[str, Any]:
        return {"max_tokens": self._draw.randint(1, 16), "temperature": self._draw.choice([0, 1])}


def _check(status: int, what: str) -> None:
    if status != 200:
        raise RuntimeError(f"{status} on {what}")


async def soak(
    url: str, pids: list[int], clients: int, seconds: float, think: float = 0.0, tell: Any = lambda _: None
) -> dict[str, Any]:
    """Run the clients and report. `pids` are the server's and its engine's, whose memory is watched."""
    record = Record()
    memory: list[tuple[float, list[float]]] = []
    began = time.monotonic()
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:
        card = (await http.get("/v1/models")).json()["data"][0]
        pictures = _pictures() if card["has_vision"] else []
        agents = [Client(number, url, record, pictures, think) for number in range(clients)]
        crowd = [asyncio.create_task(agent.live(began + seconds)) for agent in agents]
        while (now := time.monotonic() - began) < seconds:
            memory.append((now, [process_memory(pid) / 2**20 for pid in pids]))
            tell(
                f"{now:4.0f} s: {sum(record.counts.values())} requests, {sum(record.errors.values())} errors, "
                f"{sum(memory[-1][1]):.0f} MiB"
            )
            await asyncio.sleep(min(max(5.0, seconds / SAMPLES), max(0.1, seconds - now)))
        await asyncio.gather(*crowd)
        took = time.monotonic() - began
        figures = await _settled(http)
    histories = {
        name: [(at, values[number]) for at, values in memory] for number, name in enumerate(("http", "engine"))
    }
    return machine() | {
        "cores": os.cpu_count(),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "clients": clients,
        "think_seconds": think,
        "seconds": round(took, 1),
        "requests": sum(record.counts.values()),
        "requests_per_second": sum(record.counts.values()) / took,
        "tokens_per_second": record.tokens / took,
        "counts": dict(record.counts),
        "errors": dict(record.errors),
        "latency": {kind: _quantiles(values) for kind, values in record.latencies.items()},
        "memory_mib": {name: [round(value, 1) for _, value in history] for name, history in histories.items()},
        "memory_growth": {name: round(_growth(history), 4) for name, history in histories.items()},
        **{told: figures.get(name, -1) for told, name in UNDER_WAY.items()},
        "engine_failures": figures.get("holotron:failures_total", -1),
    }


async def _settled(http: httpx.AsyncClient) -> dict[str, float]:
    """The server's figures once nothing is under way, or as they are if that does not come."""
    deadline = time.monotonic() + SETTLING
    while True:
        await asyncio.sleep(1.1)  # the engine tells its figures once a second: older ones say nothing
        figures = _figures((await http.get("/metrics")).text)
        if time.monotonic() > deadline or not any(figures.get(name, -1) for name in UNDER_WAY.values()):
            return figures


def _quantiles(values: list[float]) -> dict[str, float]:
    return {f"p{percent}": round(quantile(values, percent / 100), 4) for percent in (50, 95, 99)}


def _growth(memory: list[tuple[float, float]]) -> float:
    """Memory at the end against memory after a third of the time, when everything had happened once."""
    settled = [value for at, value in memory if at > memory[-1][0] / 3]
    size = max(1, len(settled) // 4)
    return sum(settled[-size:]) / size / (sum(settled[:size]) / size) if settled else 1.0


def _figures(text: str) -> dict[str, float]:
    figures: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            figures[name.split("{", 1)[0]] = float(value)
    return figures


def _pictures() -> list[str]:
    files = [png(Image.new("RGB", (96, 64), colour)) for colour in ("red", "green", "blue")]
    return ["data:image/png;base64," + base64.b64encode(file).decode() for file in files]


@asynccontextmanager
async def server(model: str, random_weights: bool) -> AsyncIterator[tuple[str, list[int]]]:
    """A server in a process of its own, as a user would start it; its address, and its and its engine's process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "holotron.cli.main", "serve", model, "--port", str(port), "--memory", "0.5"]
    words += ["--host-memory", "0.5", "--max-context", "8192"] + (["--random"] if random_weights else [])
    process = subprocess.Popen([*words, "--admin-key", "soak"], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            for _ in range(600):
                if process.poll() is not None:
                    raise RuntimeError(f"the server ended with code {process.returncode}")
                try:
                    if (await http.get("/health")).status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.2)
            status = (await http.get("/admin/status", headers={"Authorization": "Bearer soak"})).json()
        yield url, [process.pid, status["engine_pid"]]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description="many clients against a server for minutes: no error, no leak")
    parser.add_argument("--model", help="folder or preset to serve (default: a tiny one with random weights)")
    parser.add_argument("--random", action="store_true", help="random weights in the shape of the preset")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--think", type=float, default=0, help="mean seconds between two requests of a client")
    parser.add_argument("--out", type=Path, help="also write the figures to this file")
    options = parser.parse_args()

    async def measure(model: str) -> dict[str, Any]:
        async with server(model, options.random) as (url, pids):
            tell = partial(print, file=sys.stderr, flush=True)
            return await soak(url, pids, options.clients, options.seconds, options.think, tell)

    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(measure(options.model or str(write_checkpoint(Path(folder) / "tiny"))))
    report |= {"model": options.model or "tiny", "command": "python -m tests.server.soak " + " ".join(sys.argv[1:])}
    print(json.dumps({k: v for k, v in report.items() if k != "memory_mib"}, indent=1))
    if options.out:
        write_json(options.out, report)


if __name__ == "__main__":
    main()
