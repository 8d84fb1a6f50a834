"""Agents that think between steps, simulated: the engine's own scheduler, with the planner's times of its steps."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from holotron.engine.pace import SchedulerConfig
from holotron.engine.requests import GenerationRequest
from holotron.engine.scheduler import Plan, Scheduler
from holotron.engine.session_state import SessionState
from holotron.plan.held import most_held
from holotron.plan.roofline import StepTimes
from holotron.plan.workload import Workload

SETTLED = 60.0  # seconds until the beginning is forgotten
SIMULATED = 300.0
ANSWERED = 5.0  # seconds that an answer is taken to last at the beginning


@dataclass(frozen=True)
class AnsweredStep:
    """What an agent saw: seconds to its first token, to its last, and the longest between two."""

    first_token: float
    latency: float
    longest_gap: float
    is_newcomer: bool


@dataclass(eq=False)
class SimulatedAgent:
    """Its session, how many steps it has done, and of its present one when it began and when its tokens came."""

    session: SessionState
    age: int
    new_tokens: int
    is_newcomer: bool = False
    began: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    longest_gap: float = 0.0


class AgentSimulation:
    """A workload's agents on an engine whose steps take what `times` says. Every session has room on the device.

    think: seconds between an answer and the next step. At the beginning some agents think, the others are in the middle
    of an answer. newcomers: when further agents come for one step each, and with how many
    tokens.
    """

    def __init__(
        self,
        times: StepTimes,
        workload: Workload,
        config: SchedulerConfig,
        *,
        think: tuple[float, float] = (0.0, 0.0),
        ages: tuple[int, int] | None = None,
        newcomers: Sequence[tuple[float, int]] = (),
        seed: int = 0,
    ) -> None:
        self.scheduler = Scheduler(config, _EndlessMemory())
        self.now = self.idle = 0.0
        self.steps: list[AnsweredStep] = []
        self._times, self._workload, self._think = times, workload, think
        self._youngest, self._oldest = ages or (0, workload.steps)
        self._draw = random.Random(seed)
        self._agents: dict[GenerationRequest, SimulatedAgent] = {}
        self._due: list[tuple[float, int, SimulatedAgent]] = []
        self._numbers = count(1)
        for number in range(workload.sessions):
            age = self._youngest + number * (self._oldest - self._youngest) // workload.sessions
            agent = SimulatedAgent(SessionState(str(number), slot=0), age, workload.new_tokens)
            self._rewind(agent)
            if self._draw.uniform(0, sum(think) / 2 + ANSWERED) > ANSWERED:
                self._wait(self._draw.uniform(0, sum(think) / 2), agent)
                continue
            request = self._begin(agent, 0.0)
            request.begun, agent.session.computed = True, len(agent.session.tokens) - 1
            request.generated = self._draw.randint(1, workload.generated_tokens)
        for at, tokens in newcomers:
            self._wait(at, SimulatedAgent(SessionState("newcomer", slot=0), 0, tokens, is_newcomer=True))

    @property
    def requests(self) -> list[GenerationRequest]:
        """What is under way."""
        return list(self._agents)

    def run(self, until: float) -> None:
        """Go on to that second, or until nobody comes any more."""
        for step in count(1):
            while self._due and self._due[0][0] <= self.now:
                at, _, agent = heapq.heappop(self._due)
                self._begin(agent, at)
            if self.now >= until:
                return
            plan = self.scheduler.plan(self.requests, (), step)
            if plan:
                self._take(plan)
            elif self._due:
                self.idle += self._due[0][0] - self.now
                self.now = self._due[0][0]
            else:
                return

    def _take(self, plan: Plan) -> None:
        """Let the time pass that a step takes, and hand out what it computed."""
        context = sum(request.session.computed for request in plan.decode)
        prompts = [(tokens, request.session.computed) for request, tokens in plan.prefill]
        seconds = self._times.seconds(len(plan.decode), context, prompts)
        self.now += seconds
        self.scheduler.pace.took(seconds, sum(tokens for tokens, _ in prompts))
        for request, tokens in [*((request, 1) for request in plan.decode), *plan.prefill]:
            request.begun = True
            request.session.computed += tokens
            if not request.session.uncomputed:
                self._gain(request)

    def _gain(self, request: GenerationRequest) -> None:
        """A session's next token."""
        agent, session = self._agents[request], request.session
        request.generated += 1
        _append(session, 1)
        agent.first_token = agent.first_token or self.now
        agent.longest_gap = max(agent.longest_gap, self.now - (agent.last_token or self.now))
        agent.last_token = self.now
        if request.generated < self._workload.generated_tokens:
            return
        del self._agents[request]
        session.request = None
        self.scheduler.pace.ended()
        first, whole = agent.first_token - agent.began, self.now - agent.began
        self.steps.append(AnsweredStep(first, whole, agent.longest_gap, agent.is_newcomer))
        agent.age += 1
        if agent.age == self._oldest:
            agent.age = self._youngest
            self._rewind(agent)
        if not agent.is_newcomer:
            self._wait(self.now + self._draw.uniform(*self._think), agent)

    def _begin(self, agent: SimulatedAgent, at: float) -> GenerationRequest:
        _append(agent.session, agent.new_tokens)
        agent.began, agent.first_token, agent.last_token, agent.longest_gap = at, 0.0, 0.0, 0.0
        request = GenerationRequest(agent.session, lambda *_: None, submitted_at=at)
        agent.session.request = request
        self._agents[request] = agent
        return request

    def _wait(self, until: float, agent: SimulatedAgent) -> None:
        heapq.heappush(self._due, (until, next(self._numbers), agent))

    def _rewind(self, agent: SimulatedAgent) -> None:
        """A session of the agent's age; a new one has nothing computed."""
        session, load = agent.session, self._workload
        del session.tokens[:]
        _append(session, load.start_tokens + agent.age * load.step_tokens)
        session.computed = len(session.tokens) if agent.age else 0


class _EndlessMemory:
    def has_room_for_one(self, _: SessionState) -> bool:
        return True

    def secure(self, *_: object) -> bool:
        return True

    def rewind(self, *_: object) -> None:
        raise AssertionError("nothing is computed again")


def _append(session: SessionState, tokens: int) -> None:
    session.tokens.frombytes(bytes(session.tokens.itemsize * tokens))


def simulated(
    times: StepTimes,
    workload: Workload,
    config: SchedulerConfig,
    *,
    think: tuple[float, float] = (0.0, 0.0),
    ages: tuple[int, int] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """The figures that `holotron bench agent` would report."""
    simulation = AgentSimulation(times, workload, config, think=think, ages=ages, seed=seed)
    simulation.run(SETTLED)
    simulation.steps.clear()
    began, idle = simulation.now, simulation.idle
    simulation.run(SETTLED + SIMULATED)
    latencies = sorted(step.latency for step in simulation.steps) or [0.0]
    seconds = simulation.now - began
    return {
        "agent_steps": len(simulation.steps),
        "steps_per_second": len(simulation.steps) / seconds,
        "latency_p50": latencies[len(latencies) // 2],
        "latency_p95": latencies[int(len(latencies) * 0.95)],
        "share_without_work": (simulation.idle - idle) / seconds,
        "failures": 0,
    }


def predicted_held(
    times: StepTimes,
    workload: Workload,
    config: SchedulerConfig,
    *,
    think: tuple[float, float],
    within: float,
    most: int,
    ages: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """The most agents, up to so many, of whose steps 95% are answered within so many seconds, and their figures."""

    def measure(agents: int) -> dict[str, Any]:
        return simulated(times, replace(workload, sessions=agents), config, think=think, ages=ages)

    held, rows = most_held(measure, most, within)
    figures = next((row for row in rows if row["agents"] == held), {"agents": 0})
    return {"think_seconds": list(think), "within_seconds": within, "most": most, **figures}
