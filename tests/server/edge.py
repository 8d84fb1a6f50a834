"""The HTTP process by itself: what hostile bodies, many screenshots and clients that leave cost everyone else.

Shares and CPU seconds say something on a busy machine too; latencies only on an idle one.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from PIL import Image

from holotron.bench.measuring import quantile
from holotron.bench.report import machine, write_json
from holotron.bench.screens import draw_screen, png
from tests.tiny_checkpoint import write_checkpoint

from .soak import CHAT, server

HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
WATCH_SECONDS = 0.02
LOADED_SECONDS = 3.0  # that streams run before half of them are left
PAUSE = 0.5  # between hostile bodies
SCREEN = (1920, 1080)
PHOTO = (800, 500)
KINDS = 8
TURNS = 40  # of a session with screenshots
RATE = 50.0  # requests a second that the figure about screenshots is stated for
PROBE = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    while True:
        began = time.monotonic()
        connection.sendall(b"GET /health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(65536)
        print(time.monotonic() - began, flush=True)
        time.sleep(float(sys.argv[3]))
"""
PARTS = b"[" + b",".join([b'{"type":"text","text":""}'] * 4096) + b"]"


def _says(content: bytes, more: bytes = b"") -> bytes:
    return b'{"messages":[{"role":"user","content":' + content + b"}]" + more + b',"max_tokens":1}'


def _nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def hostile_bodies(picture: str) -> dict[str, Callable[[], bytes]]:
    """Bodies that are large or hard in one way each."""
    image = json.dumps({"type": "image_url", "image_url": {"url": picture}}).encode()
    message = b'{"role":"user","content":' + PARTS + b"}"
    schema = b'{"type":"json_schema","json_schema":{"name":"x","schema":{"enum":[' + b"1," * 2_000_000 + b"1]}}}"
    return {
        "text of 5 MiB": lambda: _says(b'"' + b"word " * (2**20) + b'"'),
        "text of 15 MiB": lambda: _says(b'"' + b"word " * (3 * 2**20) + b'"'),
        "text of 15 MiB in escapes": lambda: _says(b'"' + b"\\u00e9\\n" * (15 * 2**20 // 8) + b'"'),
        "500 messages of 4,096 empty parts": lambda: b'{"messages":[' + b",".join([message] * 500) + b"]}",
        "16,000 messages": lambda: b'{"messages":[' + b",".join([b'{"role":"user","content":"a"}'] * 16_000) + b"]}",
        "64 images of 1080p": lambda: _says(b"[" + b",".join([image] * 64) + b"]"),
        "nested 100,000 deep": lambda: _says(b'"a"', b',"metadata":' + _nested(100_000)),
        "schema of 4 MB": lambda: _says(b'"a"', b',"response_format":' + schema),
        "a million token ids": lambda: b'{"prompt":[' + b"1," * 999_999 + b"1]}",
    }


@dataclass
class Watch:
    """What others see meanwhile: how long /health takes, and how many pieces running streams get."""

    health: list[float] = field(default_factory=list)
    pieces: int = 0

    def taken(self) -> tuple[list[float], int]:
        """What was seen since the last time."""
        seen = self.health, self.pieces
        self.health, self.pieces = [], 0
        return seen


@asynccontextmanager
async def watching(url: str, streams: int) -> AsyncIterator[Watch]:
    watch = Watch()
    tasks = [asyncio.create_task(_probe(url, watch))]
    tasks += [asyncio.create_task(_stream(url, watch, number)) for number in range(streams)]
    try:
        while watch.pieces < 20 * streams:
            await asyncio.sleep(0.1)
        yield watch
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _probe(url: str, watch: Watch) -> None:
    """Asks from a process of its own: this one has streams to read."""
    asking = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROBE, *_address(url), str(WATCH_SECONDS), stdout=asyncio.subprocess.PIPE
    )
    assert asking.stdout is not None
    try:
        async for line in asking.stdout:
            watch.health.append(float(line))
    finally:
        asking.kill()
        await asking.wait()


async def _stream(url: str, watch: Watch, number: int) -> None:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"Stream {number}"}],
        "max_tokens": 200 + 8 * number,
    }
    body["ignore_eos"] = True  # short and of different lengths: as a stream grows its pieces come slower
    request = _request(url, CHAT, json.dumps(body | {"stream": True}).encode())
    while True:
        reader, writer = await asyncio.open_connection(*_address(url))
        writer.write(request)
        await _count_pieces(reader, watch)
        writer.close()


def _address(url: str) -> tuple[str, str]:
    host, port = url.removeprefix("http://").split(":")
    return host, port


def _request(url: str, path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: {_address(url)[0]}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def measure_hostile(
    url: str, pid: int, seconds: float, streams: int, repeats: int, wanted: str, tell: Any
) -> dict[str, Any]:
    """Send each body again and again for a while, between two times of the same length without it, a few times over.

    The share of their pace that streams keep is the median over the repeats: what else the machine does comes and goes.
    """
    picture = _data_url(0)
    report: dict[str, Any] = {}
    async with watching(url, streams) as watch:

        async def usual() -> float:
            watch.taken()
            began = time.monotonic()
            await asyncio.sleep(seconds / 2)
            return watch.taken()[1] / (time.monotonic() - began)

        for name, make in hostile_bodies(picture).items():
            if wanted and wanted not in name:
                continue
            body = make()
            path = "/v1/completions" if b'"prompt"' in body[:20] else CHAT
            times, status, took, spent = 0, 0, 0.0, 0.0
            health, kept = list[float](), list[float]()
            await asyncio.to_thread(_post, url, path, body)  # what the first one costs, no other does
            for _ in range(repeats):
                before = await usual()
                began, busy = time.monotonic(), cpu_seconds(pid)
                while time.monotonic() - began < seconds:
                    status = await asyncio.to_thread(_post, url, path, body)
                    times += 1
                    await asyncio.sleep(PAUSE)
                lasted = time.monotonic() - began
                seen, pieces = watch.taken()
                took, spent, health = took + lasted, spent + cpu_seconds(pid) - busy, health + seen
                kept.append(pieces / lasted / max(1e-9, (before + await usual()) / 2))
            report[name] = {
                "bytes": len(body),
                "status": status,
                "requests": times,
                "seconds_each": round(took / times, 3),
                "http_cpu_seconds_each": round(spent / times, 3),
                "health_ms": {f"p{p}": round(1000 * quantile(health, p / 100), 1) for p in (50, 99)},
                "health_ms_max": round(1000 * max(health), 1),
                "streams_kept": round(median(kept), 3),
                "streams_kept_each": [round(share, 2) for share in kept],
            }
            tell(f"{name}: {report[name]}")
    return report


def _post(url: str, path: str, body: bytes) -> int:
    """The status of an answer. Without a library, which would hold up the clients beside it."""
    with socket.create_connection(_address(url), timeout=600) as connection:
        connection.sendall(_request(url, path, body))
        answer = b""
        while piece := connection.recv(2**16):
            answer += piece
    return int(answer.split(b" ", 2)[1])


async def measure_screens(
    url: str, pids: list[int], agents: int, seconds: float, photo: bool, tell: Any
) -> dict[str, Any]:
    """Agents that send a screenshot each turn: CPU seconds of the HTTP process for each."""
    pictures = [_data_url(kind, photo) for kind in range(KINDS)]
    bodies = [
        json.dumps({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]})
        for url in pictures
    ]
    bodies = [body[:-1] + ', "max_tokens": 1}' for body in bodies]
    done = 0

    async def agent(number: int, http: httpx.AsyncClient, session: str) -> None:
        nonlocal done
        draw = random.Random(number)
        headers = {"content-type": "application/json"}
        for turn in itertools.count():
            if time.monotonic() > until:
                return
            if turn % TURNS == TURNS - 1:
                await http.delete(f"/v1/sessions/{session}")
                session = await _open(http)
            answer = await http.post(f"/v1/sessions/{session}/turns", content=draw.choice(bodies), headers=headers)
            answer.raise_for_status()
            done += 1

    async with AsyncExitStack() as stack:
        crowd = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=600, trust_env=False))
            for _ in range(agents)
        ]
        sessions = [await _open(http) for http in crowd]
        before = [cpu_seconds(pid) for pid in pids]
        began = time.monotonic()
        until = began + seconds
        await asyncio.gather(*map(agent, range(agents), crowd, sessions))
        took = time.monotonic() - began
        spent = [cpu_seconds(pid) - known for pid, known in zip(pids, before, strict=True)]
    report = {
        "agents": agents,
        "screenshot_bytes": sum(len(picture) for picture in pictures) * 3 // 4 // KINDS,
        "requests": done,
        "requests_per_second": round(done / took, 2),
        "http_cpu_ms_per_request": round(1000 * spent[0] / done, 2),
        "engine_cpu_ms_per_request": round(1000 * spent[1] / done, 2),
        "http_cores_at_50_per_second": round(RATE * spent[0] / done, 3),
    }
    tell(str(report))
    return report


async def measure_cancelling(
    url: str, streams: int, tell: Any, tokens: int = 8000, loaded: float = LOADED_SECONDS
) -> dict[str, Any]:
    """Half of many streams are left at once: seconds until the engine has let go of each, and its session is free.

    What each of the others is sent meanwhile tells the same on a machine that is busy with something else.
    """
    body = json.dumps(HELLO | {"max_tokens": tokens, "ignore_eos": True, "stream": True}).encode()
    async with httpx.AsyncClient(base_url=url, timeout=600, trust_env=False) as http:
        ids = [await _open(http) for _ in range(streams)]
        connections = {id_: await asyncio.open_connection(*_address(url)) for id_ in ids}
        for id_, (_, writer) in connections.items():
            writer.write(_request(url, f"/v1/sessions/{id_}/turns", body))
        for reader, _ in connections.values():
            await reader.readuntil(b"data: ")
        seen = Watch()  # of those that stay
        readers = [(reader, seen if number % 2 else Watch()) for number, (reader, _) in enumerate(connections.values())]
        reading = [asyncio.create_task(_count_pieces(reader, watch)) for reader, watch in readers]
        await asyncio.sleep(loaded)
        left, freed = set(ids[::2]), list[float]()
        seen.taken()
        began = time.monotonic()
        for id_ in left:
            connections[id_][1].transport.abort()
        while left:
            told = (await http.get("/v1/sessions")).json()["data"]
            free = left & {session["id"] for session in told if not session["busy"]}
            freed += [time.monotonic() - began] * len(free)
            left -= free
            await asyncio.sleep(0.02)
        meanwhile = seen.taken()[1] / max(1, streams - len(freed))
        for task in reading:
            task.cancel()
        for _, writer in connections.values():
            writer.transport.abort()
    report = {"streams": streams, "left": len(freed), "p50_seconds": round(quantile(freed, 0.5), 3)}
    report |= {"max_seconds": round(max(freed), 3), "tokens_of_others": round(meanwhile, 1)}
    tell(str(report))
    return report


async def _open(http: httpx.AsyncClient) -> str:
    return str((await http.post("/v1/sessions", json={})).raise_for_status().json()["id"])


async def _count_pieces(reader: asyncio.StreamReader, watch: Watch) -> None:
    while piece := await reader.read(2**16):
        watch.pieces += piece.count(b"data: ")


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of the children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _data_url(kind: int, photo: bool = False) -> str:
    screen = draw_screen(SCREEN, kind, 1.0)
    if photo:  # which no file makes smaller
        screen.paste(Image.merge("RGB", [Image.effect_noise(PHOTO, 50 + kind) for _ in "RGB"]), PHOTO)
    return "data:image/png;base64," + base64.b64encode(png(screen)).decode()


def run(options: argparse.Namespace) -> dict[str, Any]:
    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    async def measure(model: str) -> dict[str, Any]:
        async with server(model, False) as (url, pids):
            parts = options.parts.split(",")
            report: dict[str, Any] = {}
            if "hostile" in parts:
                report["hostile"] = await measure_hostile(
                    url, pids[0], options.seconds, options.streams, options.repeats, options.body, tell
                )
            if "screens" in parts:
                for name, photo in {"screens": False, "screens_with_a_photo": True}.items():
                    report[name] = await measure_screens(url, pids, options.agents, options.seconds * 3, photo, tell)
            if "cancel" in parts:
                report["cancel"] = await measure_cancelling(url, options.agents, tell)
            async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
                figures = (await http.get("/metrics")).text.splitlines()
        lag = [line.split(" ") for line in figures if line.startswith("holotron:event_loop_lag_seconds_bucket")]
        report["event_loop_lag"] = {name.split('le="')[1].split('"')[0]: float(count) for name, count in lag}
        return report

    with tempfile.TemporaryDirectory() as folder:
        report = machine() | {
            "command": "make edge",
            "load_average": round(os.getloadavg()[0], 1),
            "cores": os.cpu_count(),
        }
        report |= asyncio.run(measure(str(write_checkpoint(Path(folder) / "tiny"))))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="the HTTP process under hostile bodies, screenshots, leaving clients")
    parser.add_argument("--parts", default="hostile,screens,cancel", help="which of these")
    parser.add_argument("--body", default="", help="only hostile bodies whose name has this in it")
    parser.add_argument("--agents", type=int, default=300, help="that send screenshots; half of as many streams leave")
    parser.add_argument("--streams", type=int, default=8, help="that run beside hostile bodies")
    parser.add_argument("--seconds", type=float, default=4, help="for each body each time, and a third for screenshots")
    parser.add_argument("--repeats", type=int, default=5, help="of each body; streams are told by the median")
    parser.add_argument("--out", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    report = run(options)
    print(json.dumps(report, indent=1))
    if options.out:
        write_json(options.out, report)


if __name__ == "__main__":
    main()
