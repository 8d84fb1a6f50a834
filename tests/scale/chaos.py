"""Replicas on a Ray cluster of several nodes, killed, moved and replaced under sessions that never stop.

    python -m tests.scale.chaos --sessions 200 --seconds 600 --out benchmarks/results/replica-kills.json

Every answer is compared with what one engine says. Nothing is retried: an error of any kind is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from holotron.bench.measuring import quantile
from holotron.bench.report import machine
from holotron.bench.screens import draw_screen, png
from holotron.scale.ray_extra import import_ray
from holotron.scale.router import ReplicaRouter
from holotron.scale.serve import replica_set
from holotron.server.settings import ServerSettings
from tests.process_memory import process_memory
from tests.server.live import Live, options, serving, write_checkpoint

SCRIPTS = 12
ADMIN = {"Authorization": "Bearer admin"}
WORDS = ["open", "the", "shop", "and", "look", "for", "a", "green", "lamp", "that", "costs", "less", "than", "twenty"]


def script(number: int) -> list[dict[str, Any]]:
    """The turns of a session: words, now and then a screenshot, greedy or drawn with a seed."""
    draw = random.Random(number)
    turns = []
    for turn in range(draw.randint(3, 6)):
        content: list[dict[str, Any]] = [{"type": "text", "text": " ".join(draw.choices(WORDS, k=draw.randint(2, 20)))}]
        if draw.random() < 0.4:
            data = base64.b64encode(png(draw_screen((96, 64), 10 * number + turn, 1.0))).decode()
            content.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": draw.randint(4, 24)}
        body |= {"temperature": 0} if draw.random() < 0.7 else {"temperature": 1.0, "seed": turn}
        turns.append(body | {"return_token_ids": True, "ignore_eos": True})
    return turns


class Clients:
    """Sessions in closed loop, and what they saw."""

    def __init__(self, url: str, expected: list[list[list[int]]], think: float) -> None:
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.AsyncClient(base_url=url, timeout=300, trust_env=False, verify=False, limits=limits)
        self._expected = expected
        self._think = think
        self.errors: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.latencies: list[float] = []

    async def live(self, number: int, until: float) -> None:
        draw = random.Random(number)
        while time.monotonic() < until:
            try:
                await self._session(draw, until)
            except Exception as error:
                self.errors[f"{type(error).__name__}: {error}"[:300]] += 1

    async def _session(self, draw: random.Random, until: float) -> None:
        chosen = draw.randrange(SCRIPTS)
        session = (await self._post("/v1/sessions", {}))["id"]
        self.counts["sessions"] += 1
        for number, body in enumerate(script(chosen)):
            if time.monotonic() > until:
                break
            began = time.monotonic()
            answer = await self._post(f"/v1/sessions/{session}/turns", body)
            self.latencies.append(time.monotonic() - began)
            self.counts["turns"] += 1
            self.counts["tokens"] += len(answer["choices"][0]["token_ids"])
            self.counts["wrong"] += answer["choices"][0]["token_ids"] != self._expected[chosen][number]
            await asyncio.sleep(2 * self._think * draw.random())
        (await self._http.delete(f"/v1/sessions/{session}")).raise_for_status()

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._http.post(path, json=body)
        if answer.status_code != 200:
            self.counts[f"status {answer.status_code}"] += 1
            raise RuntimeError(f"{path.split('/')[-1]}: {answer.status_code} {answer.text[:200]}")
        told: dict[str, Any] = answer.json()
        return told


def expected_answers(folder: Path) -> list[list[list[int]]]:
    """What one engine says in every script."""
    with serving(folder) as live, live.client() as http:
        found = []
        for number in range(SCRIPTS):
            session = http.post("/v1/sessions").json()["id"]
            answers = [http.post(f"/v1/sessions/{session}/turns", json=body).json() for body in script(number)]
            found.append([answer["choices"][0]["token_ids"] for answer in answers])
    return found


class Chaos:
    """What is done to the replicas, one thing after another."""

    def __init__(self, live: Live, cluster: Any, nodes: int, replicas: int, every: float) -> None:
        assert isinstance(live.state.client, ReplicaRouter)
        self._router = live.state.client
        self._url = live.url
        self._cluster = cluster
        self._nodes = nodes
        self._replicas = replicas
        self._every = every
        self._draw = random.Random(1)
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []

    async def go_on(self, until: float) -> None:
        kinds = [self._kill, self._kill, self._kill, self._resize, self._replace, self._node]
        turn = 0
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, self._every))
            try:
                async with asyncio.timeout(120):
                    await kinds[turn % len(kinds)]()
            except Exception as error:
                self.problems.append(f"{kinds[turn % len(kinds)].__name__}: {type(error).__name__}: {error}"[:200])
            turn += 1

    async def _kill(self) -> None:
        up = self._router.directory.up()
        if len(up) < 2:
            return
        pid = self._draw.choice(up).client.pid
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.done["replicas killed"] += 1

    async def _resize(self) -> None:
        await self._admin("", {"count": self._replicas - 1})
        await self._admin("", {"count": self._replicas})
        self.done["resized"] += 1

    async def _replace(self) -> None:
        names = [replica.name for replica in self._router.directory.up()]
        if names:
            await self._admin(f"/{self._draw.choice(names)}/replace", {})
            self.done["replaced"] += 1

    async def _node(self) -> None:
        """A node comes, and one that was there goes without a word."""
        self._cluster.add_node(num_cpus=2, object_store_memory=80 * 2**20)  # only on the main thread
        self.done["nodes added"] += 1
        others = [node for node in self._cluster.list_all_nodes() if node is not self._cluster.head_node]
        if len(others) >= self._nodes:
            self._cluster.remove_node(self._draw.choice(others), allow_graceful=False)
            self.done["nodes removed"] += 1

    async def _admin(self, path: str, body: dict[str, Any]) -> None:
        async with httpx.AsyncClient(timeout=120, trust_env=False, headers=ADMIN) as http:
            (await http.post(f"{self._url}/admin/replicas{path}", json=body)).raise_for_status()


async def measure(live: Live, cluster: Any, given: argparse.Namespace, expected: Any) -> dict[str, Any]:
    clients = Clients(live.url, expected, given.think)
    chaos = Chaos(live, cluster, given.nodes, given.replicas, given.every)
    until = time.monotonic() + given.seconds
    memory: list[int] = []

    async def watch() -> None:
        while time.monotonic() < until:
            await asyncio.sleep(given.seconds / 30)
            memory.append(process_memory(os.getpid()))

    await asyncio.gather(
        *(clients.live(number, until) for number in range(given.sessions)), chaos.go_on(until), watch()
    )
    router = live.state.client
    assert isinstance(router, ReplicaRouter)
    third = max(1, len(memory) // 3)
    return {
        "sessions_at_once": given.sessions,
        "seconds": given.seconds,
        "nodes": given.nodes,
        "replicas": given.replicas,
        "think_seconds": given.think,
        "sessions": clients.counts["sessions"],
        "turns": clients.counts["turns"],
        "tokens": clients.counts["tokens"],
        "wrong_answers": clients.counts["wrong"],
        "failed_requests": dict(clients.errors),
        "done_to_them": dict(chaos.done),
        "problems_of_the_test_itself": chaos.problems,
        **{f"sessions_{name}": count for name, count in router.counts.items()},
        "turn_p50_seconds": quantile(clients.latencies, 0.5),
        "turn_p99_seconds": quantile(clients.latencies, 0.99),
        "turn_longest_seconds": max(clients.latencies, default=0.0),
        "server_memory_mib": [sum(part) / len(part) / 2**20 for part in (memory[third : 2 * third], memory[-third:])],
        "sessions_left": len(router.directory.places),
    }


def run(given: argparse.Namespace) -> dict[str, Any]:
    ray = import_ray()
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory() as folder_:
        folder = write_checkpoint(Path(folder_) / "tiny")
        expected = expected_answers(folder)
        head = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 80 * 2**20}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(given.nodes - 1):
                cluster.add_node(num_cpus=2, object_store_memory=80 * 2**20)
            settings = ServerSettings(engine=options(folder), log_format="text")
            with (
                replica_set(settings, given.replicas, cluster.address) as replicas,
                serving(folder, replicas=replicas, admin_key="admin") as live,
            ):
                figures = asyncio.run(measure(live, cluster, given, expected))
        finally:
            with suppress(Exception):
                ray.shutdown()
            cluster.shutdown()
    facts = machine() | {"command": "python -m tests.scale.chaos " + " ".join(sys.argv[1:]), "ray": ray.__version__}
    return facts | figures


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--think", type=float, default=4.0, help="mean seconds between two turns of a session")
    parser.add_argument("--every", type=float, default=8.0, help="seconds between two things done to replicas")
    parser.add_argument("--out", type=Path)
    return parser.parse_args(words)


def main() -> int:
    given = parse()
    report = run(given)
    if given.out:
        given.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    return int(bool(report["wrong_answers"] or report["failed_requests"] or report["sessions_lost"]))


if __name__ == "__main__":
    sys.exit(main())
