"""A cluster simulated: agents, fronts, and replicas that fail, with the times that single machines were measured at.

Every agent is followed from step to step through three places, each of which serves one request after another: its
front's HTTP process, its replica's engine, and its own page. Replicas fail at random: what they were computing is
computed anew by others, with the history of the session first. Assumptions that nothing here measures are options.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from holotron.bench.measuring import quantile
from holotron.bench.report import machine, print_figures

BASE64 = 4 / 3  # a screenshot on its way from a host to a front
MEASURED = ("screens-100.json", "phases-12b.json", "edge.json", "browsers-100.json")


@dataclass(frozen=True)
class ClusterInputs:
    """What was measured on single machines."""

    steps_per_second: float  # of one replica with its agents
    prefill_tokens_per_second: float
    bytes_per_session: float
    tokens_per_step: int
    system_tokens: int
    steps_per_session: int
    screenshot_bytes: int
    front_seconds: float  # of one core for each request
    host_steps_per_second: float  # of one core with browsers

    @classmethod
    def read(cls, folder: Path, photos: bool) -> ClusterInputs:
        """From the files of `holotron bench`. photos: screenshots as large as those with a photograph on them."""
        agent, phases, edge, browsers = (json.loads((folder / name).read_text("utf-8")) for name in MEASURED)
        load, screens = agent["workload"], edge["screens_with_a_photo" if photos else "screens"]
        return cls(
            agent["steps_per_second"],
            phases["prefill_tokens_per_second"],
            agent["bytes_per_session"],
            load["image_tokens"] + load["text_tokens"] + load["generated_tokens"],
            load["system_tokens"],
            load["steps"],
            screens["screenshot_bytes"],
            screens["http_cpu_ms_per_request"] / 1000,
            browsers["steps_per_second"] / edge["cores"],  # both were measured on the same two cores
        )


@dataclass(frozen=True)
class ClusterPlan:
    """What is simulated. Hours between failures are of one replica and one host; a replica is back after `repair`."""

    replicas: int = 64
    agents: int = 100  # of each replica
    fronts: int = 1
    minutes: float = 60.0
    page_seconds: float = 1.0
    replica_hours: float = 12.0
    repair: float = 180.0
    detect: float = 5.0
    host_hours: float = 24.0
    pages: int = 16  # of each host
    gigabits: float = 25.0
    seed: int = 0


@dataclass
class _Queue:
    """A place that serves one request after another."""

    free_at: float = 0.0
    busy: float = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """When a request that comes now is done."""
        self.free_at = max(now, self.free_at) + seconds
        self.busy += seconds
        return self.free_at


@dataclass
class _Replica:
    engine: _Queue = field(default_factory=_Queue)
    up: bool = True
    sessions: set[int] = field(default_factory=set)


@dataclass
class _SimulatedAgent:
    age: int  # steps of its session
    home: int | None = None
    began: float = 0.0
    life: int = 0  # an event of an earlier one is void
    at_engine: bool = False


class Simulation:
    """Runs the plan; what came of it is in `report`."""

    def __init__(self, plan: ClusterPlan, inputs: ClusterInputs) -> None:
        self.plan, self.inputs = plan, inputs
        self._draw = random.Random(plan.seed)
        self._replicas = [_Replica() for _ in range(plan.replicas)]
        self._fronts = [_Queue() for _ in range(plan.fronts)]
        steps = inputs.steps_per_session
        self._agents = [
            _SimulatedAgent(number // plan.replicas % steps) for number in range(plan.replicas * plan.agents)
        ]
        self._events: list[tuple[float, int, str, int, int]] = []
        self._order = count()
        self._calm: list[float] = []
        self._failing: list[float] = []  # steps that were taken while a replica was away
        self._down = 0
        self.counts = {"replicas_failed": 0, "rebuilt": 0, "rebuilt_tokens": 0, "moved": 0, "hosts_failed": 0}

    def run(self) -> dict[str, Any]:
        plan, end = self.plan, 60 * self.plan.minutes
        for number, agent in enumerate(self._agents):
            agent.home = number % plan.replicas
            self._replicas[agent.home].sessions.add(number)
            self._put(self._draw.uniform(0, plan.agents / self.inputs.steps_per_second), "front", number)
        for number in range(plan.replicas):
            self._put(self._draw.expovariate(1 / (3600 * plan.replica_hours)), "fail", number)
        for _ in range(self._hosts):
            self._put(self._draw.expovariate(1 / (3600 * plan.host_hours)), "host", 0)
        handle: dict[str, Callable[[float, int], None]] = {
            "front": self._at_front,
            "engine": self._at_engine,
            "told": self._told,
            "fail": self._fail,
            "back": self._back,
            "host": self._host_failed,
        }
        while self._events and self._events[0][0] < end:
            now, _, what, number, life = heapq.heappop(self._events)
            if what not in ("front", "engine", "told") or life == self._agents[number].life:
                handle[what](now, number)
        return self.report(end)

    @property
    def _hosts(self) -> int:
        return -(-len(self._agents) // self.plan.pages)

    def _put(self, when: float, what: str, number: int) -> None:
        life = self._agents[number].life if what in ("front", "engine", "told") else 0
        heapq.heappush(self._events, (when, next(self._order), what, number, life))

    # ---- a step ----

    def _at_front(self, now: float, number: int) -> None:
        agent = self._agents[number]
        agent.began = now
        front = self._fronts[number % len(self._fronts)]
        self._put(front.serve(now, self.inputs.front_seconds), "engine", number)

    def _at_engine(self, now: float, number: int) -> None:
        agent, inputs = self._agents[number], self.inputs
        seconds = 1 / inputs.steps_per_second
        if agent.home is None:
            up = [index for index, replica in enumerate(self._replicas) if replica.up]
            if not up:
                self._put(now + 1, "engine", number)
                return
            agent.home = min(up, key=lambda index: len(self._replicas[index].sessions))
            self._replicas[agent.home].sessions.add(number)
            if agent.age:
                tokens = inputs.system_tokens + agent.age * inputs.tokens_per_step
                seconds += tokens / inputs.prefill_tokens_per_second
                self.counts["rebuilt"] += 1
                self.counts["rebuilt_tokens"] += tokens
        agent.at_engine = True
        self._put(self._replicas[agent.home].engine.serve(now, seconds), "told", number)

    def _told(self, now: float, number: int) -> None:
        agent = self._agents[number]
        (self._failing if self._down else self._calm).append(now - agent.began)
        agent.at_engine = False
        agent.age += 1
        if agent.age == self.inputs.steps_per_session:  # its episode is over; the next one goes where there is room
            assert agent.home is not None
            self._replicas[agent.home].sessions.discard(number)
            agent.age, agent.home = 0, None
        self._put(now + self._draw.expovariate(1 / self.plan.page_seconds), "front", number)

    # ---- failures ----

    def _fail(self, now: float, number: int) -> None:
        replica, plan = self._replicas[number], self.plan
        replica.up = False
        self._down += 1
        self.counts["replicas_failed"] += 1
        for each in replica.sessions:
            agent = self._agents[each]
            agent.home = None
            if agent.at_engine:  # the turn is taken again elsewhere, once the front knows
                agent.life += 1
                agent.at_engine = False
                self._put(now + plan.detect, "engine", each)
        replica.sessions, replica.engine.free_at = set(), now
        self._put(now + plan.repair, "back", number)

    def _back(self, now: float, number: int) -> None:
        """It is up again, and gets sessions of others, until it has as many."""
        replica = self._replicas[number]
        replica.up = True
        self._down -= 1
        up = [each for each in self._replicas if each.up]
        mean = sum(len(each.sessions) for each in up) // len(up)
        for other in sorted(up, key=lambda each: -len(each.sessions)):
            idle = [each for each in other.sessions if not self._agents[each].at_engine]
            for each in idle[: min(len(other.sessions) - mean, mean - len(replica.sessions))]:
                other.sessions.discard(each)
                replica.sessions.add(each)
                self._agents[each].home = number
                self.counts["moved"] += 1
        self._put(now + self._draw.expovariate(1 / (3600 * self.plan.replica_hours)), "fail", number)

    def _host_failed(self, now: float, _: int) -> None:
        self.counts["hosts_failed"] += 1
        self._put(now + self._draw.expovariate(1 / (3600 * self.plan.host_hours)), "host", 0)

    # ---- what came of it ----

    def report(self, seconds: float) -> dict[str, Any]:
        plan, inputs = self.plan, self.inputs
        steps = len(self._calm) + len(self._failing)
        rate = steps / seconds
        shares = self.shares(rate, seconds)
        # In proportion: with twice the replicas, each place carries twice as much, but for those that are a replica's.
        grows = {name: share for name, share in shares.items() if name != "engines"}
        first = max(grows, key=lambda name: grows[name])
        return {
            "plan": asdict(plan),
            "measured": asdict(inputs),
            "steps": steps,
            "steps_per_second": rate,
            "share_of_all_replicas": rate / (plan.replicas * inputs.steps_per_second),
            "step_seconds": _typical(self._calm),
            "step_seconds_while_a_replica_is_away": _typical(self._failing),
            **self.counts,
            "episodes_begun_again": self.counts["hosts_failed"] * plan.pages,
            "rebuilt_seconds_of_one_engine": self.counts["rebuilt_tokens"] / inputs.prefill_tokens_per_second,
            "moved_gigabytes": self.counts["moved"] * inputs.bytes_per_session / 1e9,
            "seconds_to_move_a_session": inputs.bytes_per_session * 8 / (plan.gigabits * 1e9),
            "directory_lookups_per_second": rate,
            "cores_for_browsers": rate / inputs.host_steps_per_second,
            "share_used": shares,
            "first_limit": first,
            "replicas_at_the_first_limit": int(plan.replicas / max(1e-9, self._demand(first))),
        }

    def shares(self, rate: float, seconds: float) -> dict[str, float]:
        """How much of each place was used."""
        inputs, link = self.inputs, self.plan.gigabits * 1e9 / 8
        return {
            "engines": statistics.mean(replica.engine.busy for replica in self._replicas) / seconds,
            "a front's HTTP process": min(1.0, max(front.busy for front in self._fronts) / seconds),
            "a front's network in": rate * inputs.screenshot_bytes * BASE64 / len(self._fronts) / link,
            "a front's network out": rate * inputs.screenshot_bytes / len(self._fronts) / link,
            "the fleet's network in": rate * inputs.screenshot_bytes / link,  # episodes come together
        }

    def _demand(self, place: str) -> float:
        """The share of a place that all replicas would use if nothing held them back."""
        full = self.plan.replicas * self.inputs.steps_per_second
        if place == "a front's HTTP process":
            return full * self.inputs.front_seconds / len(self._fronts)
        return self.shares(full, 1.0)[place]


def _typical(values: list[float]) -> dict[str, float]:
    return {"p50": quantile(values, 0.5), "p99": quantile(values, 0.99)}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replicas", type=int, default=ClusterPlan.replicas)
    parser.add_argument("--agents", type=int, default=ClusterPlan.agents, help="of each replica")
    parser.add_argument("--fronts", type=int, default=ClusterPlan.fronts, help="servers that agents are spread over")
    parser.add_argument("--minutes", type=float, default=ClusterPlan.minutes, help="that are simulated")
    parser.add_argument("--photos", action="store_true", help="screenshots of 1.35 MB instead of 0.17")
    parser.add_argument("--page-seconds", type=float, default=ClusterPlan.page_seconds, help="between two requests")
    parser.add_argument("--replica-hours", type=float, default=ClusterPlan.replica_hours, help="between its failures")
    parser.add_argument("--repair", type=float, default=ClusterPlan.repair, help="seconds until it is back")
    parser.add_argument("--gigabits", type=float, default=ClusterPlan.gigabits, help="of each machine's network")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"), help=f"with {', '.join(MEASURED)}")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """`holotron bench cluster`."""
    names = ("replicas", "agents", "fronts", "minutes", "page_seconds", "replica_hours", "repair", "gigabits")
    try:
        inputs = ClusterInputs.read(options.results, options.photos)
    except OSError as error:
        raise SystemExit(f"{error}; --results FOLDER has the measurements of single machines") from error
    plan = ClusterPlan(**{name: getattr(options, name) for name in names})
    report = machine() | Simulation(plan, inputs).run()
    if not options.json:
        print_figures({key: value for key, value in report.items() if key not in ("plan", "measured")}, digits=2)
    return report
