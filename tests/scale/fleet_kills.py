"""`make fleet-kills`: 300 MiniWoB++ episodes on Ray hosts while hosts, machines and the command itself are killed.

The cluster is real, with its machines as processes here (ray.cluster_utils.Cluster); browsers are real, and hosts ask a
scripted policy over HTTP. What it does follows from instruction and step alone, so that every episode has one right
reward: that of a run without Ray and kills. Every episode must be there once with it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import re
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holotron.actions.action import Click, to_json
from holotron.episodes.store import EpisodeStore
from tests.agent.scripted_server import scripted_server
from tests.env.driver import descendants
from tests.eval.killed import Killer, circumstances, run_to_the_end

TASKS = (
    *("click-test", "click-test-2", "click-button", "click-dialog", "click-link"),
    *("click-tab", "click-widget", "focus-text", "focus-text-2", "click-checkboxes"),
)
MACHINES = 3
Rewards = dict[tuple[str | None, int | None], float | None]


def policy(request: dict[str, Any]) -> str:
    """A click somewhere, which the conversation's texts alone decide."""
    texts = [
        message["content"]
        if isinstance(message["content"], str)
        else [part["text"] for part in message["content"] if part["type"] == "text"]
        for message in request["messages"]
    ]
    digest = hashlib.sha256(json.dumps(texts).encode()).digest()
    return to_json(Click(x=40 + digest[0] * 920 // 255, y=260 + digest[1] * 720 // 255))


class Chaos:
    """Kills something each time so many answers were given: a host, then a machine, for which another comes."""

    def __init__(self, cluster: Any, every: int) -> None:
        self._cluster, self._every = cluster, every
        self._turn = threading.Lock()
        self._wanted: queue.Queue[int | None] = queue.Queue()
        self._machines: list[Any] = []
        self.answers = 0
        self.kills: Counter[str] = Counter()
        for _ in range(MACHINES):
            self.add_machine()

    def add_machine(self) -> None:
        self._machines.append(self._cluster.add_node(num_cpus=1))
        self.kills["machines added"] += 1

    def count(self) -> None:
        with self._turn:
            self.answers += 1
            if self.answers % self._every == 0:
                self._wanted.put(self.answers // self._every)

    def until(self, done: Future[Any]) -> None:
        """Kill what is to be killed, in the main thread: Ray starts machines in no other."""
        done.add_done_callback(lambda _: self._wanted.put(None))
        while (number := self._wanted.get()) is not None:
            self._kill(number)

    def _kill(self, number: int) -> None:
        if number % 3 == 0 and len(self._machines) == MACHINES:
            self.kills["machines killed"] += 1
            self._cluster.remove_node(self._machines.pop(0), allow_graceful=False)
            self.add_machine()
            return
        hosts = [pid for pid, line in descendants(os.getpid()).items() if line.startswith("ray::BrowserHost")]
        if hosts:
            self.kills["hosts killed"] += 1
            os.kill(hosts[number % len(hosts)], signal.SIGKILL)


def rewards(folder: Path) -> Rewards:
    found: Rewards = {}
    for info in EpisodeStore(folder).list_episodes(finished=True):
        assert info.outcome is not None
        assert info.counts
        key = info.task.name, info.task.seed
        assert key not in found, f"{key} is there twice"
        found[key] = info.outcome.reward
    return found


def killed_run(folder: Path, seeds: int, every: int, deaths: int) -> dict[str, Any]:
    from ray.cluster_utils import Cluster

    command = ["eval", "miniwob", "--tasks", ",".join(TASKS), "--seeds", ",".join(map(str, range(seeds)))]
    command += ["--bare", "--json", "--endpoint"]
    with scripted_server(policy, policy_format={"format": "json"}) as server:
        began = time.monotonic()
        run_to_the_end([*command, server.url, "--out", str(folder / "calm"), "--sessions", "8"], [])
        calm = time.monotonic() - began
    expected = rewards(folder / "calm")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    chaos = Chaos(cluster, every)
    driver = Killer([len(expected) * 3 * (number + 1) // (deaths + 1) for number in range(deaths)])

    def answer(request: dict[str, Any]) -> str:
        chaos.count()
        driver.count("answer")
        return policy(request)

    try:
        with scripted_server(answer, policy_format={"format": "json"}) as server:
            command += [server.url, "--out", str(folder / "killed"), "--ray", cluster.address]
            began = time.monotonic()
            command += ["--workers", str(MACHINES), "--sessions", str(3 * MACHINES)]
            with ThreadPoolExecutor(1) as thread:
                running = thread.submit(run_to_the_end, command, [driver])
                chaos.until(running)
                output, runs = running.result()
            seconds = time.monotonic() - began
    finally:
        left = [line for line in descendants(os.getpid()).values() if re.search("chrom|headless", line)]
        cluster.shutdown()
    report, found = json.loads(output), rewards(folder / "killed")
    store = EpisodeStore(folder / "killed")
    return {
        "policy": "scripted, over HTTP: clicks that follow from the conversation's texts",
        "episodes": len(expected),
        "solved": sum((reward or 0) > 0 for reward in expected.values()),
        **chaos.kills,
        "commands_killed": driver.kills,
        "runs": runs,
        "answers": chaos.answers,
        "retried_in_the_last_run": report["retried"],
        "lost": len(expected.keys() - found.keys()),
        "not_asked_for": len(found.keys() - expected.keys()),
        "doubled": len(store.list_episodes()) - len(found),
        "falsely_scored": sum(found[key] != expected[key] for key in expected.keys() & found.keys()),
        "damaged": len(store.check()),
        "browsers_left_behind": len(left),
        "seconds": round(seconds, 1),
        "seconds_without_ray_and_kills": round(calm, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.scale.fleet_kills", description=__doc__)
    parser.add_argument("--seeds", type=int, default=30, help=f"of each of {len(TASKS)} tasks")
    parser.add_argument("--every", type=int, default=150, help="answers between two kills of hosts and machines")
    parser.add_argument("--deaths", type=int, default=1, help="of the command itself")
    parser.add_argument("--work", type=Path, help="a folder that is kept: a second run goes on in it")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with nullcontext(args.work) if args.work else TemporaryDirectory() as folder:
        found = killed_run(Path(folder), args.seeds, args.every, args.deaths)
    words = f"python -m tests.scale.fleet_kills --seeds {args.seeds} --every {args.every} --deaths {args.deaths}"
    report = circumstances(words) | found
    text = json.dumps(report, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n", encoding="utf-8")
    wrong = ("lost", "not_asked_for", "doubled", "falsely_scored", "damaged", "browsers_left_behind")
    sys.exit(any(report[key] for key in wrong))


if __name__ == "__main__":
    main()
