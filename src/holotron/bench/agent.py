"""The agent workload: many sessions, each a closed loop of screenshot in, action out, measured in the steady state.

A session begins with a system prompt. Each step appends a screenshot and some text and generates an action; after its
last step the session is closed and a new one takes its place. Ages are staggered, so that the mix is steady.
With arrivals the loop is open: sessions come when they come, and nobody takes the place of one that ends.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from statistics import mean
from typing import Any

from holotron.bench.arrivals import Arrivals, Life, TracedEpisode
from holotron.bench.measuring import quantile, random_tokens, time_when_idle
from holotron.bench.screens import Screens
from holotron.engine.engine_loop import EngineLoop
from holotron.engine.images import PreparedImage
from holotron.engine.info import device_usage
from holotron.engine.requests import Event, FinishEvent, GenerationRequest, TokenEvent
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session_state import SessionState
from holotron.plan.agents import ANSWERED
from holotron.plan.workload import DEFAULT_IMAGE_TOKENS, Workload


@dataclass(frozen=True)
class AgentWorkload(Workload):
    """What every session does. With text_only, screenshots are `image_tokens` random tokens, else real images.

    The tokens that start and end an image count as text.
    `history` is what a session has before its first step, besides the system prompt. `ages` are the steps that the
    youngest session has behind it and that the oldest does not reach: there it goes on from a copy of the youngest.
    `rate` is how many agents come in a second, `burst` at a time; `trace` gives their steps, and, without a rate, when
    they come.
    """

    image_tokens: int | None = DEFAULT_IMAGE_TOKENS
    text_only: bool = True
    history: int = 0
    ages: tuple[int, int] | None = None
    group: int = 1
    think_seconds: tuple[float, float] = (0.0, 0.0)
    changed: float = 1.0
    rate: float = 0.0
    burst: int = 1
    trace: tuple[TracedEpisode, ...] = ()
    seed: int = 0

    @property
    def is_open(self) -> bool:
        return self.rate > 0 or bool(self.trace)

    @property
    def start_tokens(self) -> int:
        return self.system_tokens + self.history

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the size of the screen where there is one."""
        return asdict(self) | {"screen": None if self.text_only else self.screen, "trace": len(self.trace)}

    @property
    def longest(self) -> int:
        """Tokens of the longest session."""
        lives = (sum(s.new_tokens + s.generated_tokens for s in episode.life) for episode in self.trace)
        return max(self.end_tokens, self.start_tokens + max(lives, default=0))


@dataclass
class AgentGroup:
    """Sessions forked from one: the leader stays open until the last of them has ended."""

    leader: SessionState
    members: int


@dataclass
class AgentSession:
    """One session of the load and where it is in its life."""

    number: int
    session: SessionState
    step: int
    group: AgentGroup | None = None
    life: Life | None = None
    begun: float = 0.0
    first_token: float = 0.0


@dataclass
class Measurement:
    """What happened between the end of the warm-up and the end."""

    seconds: float = 0.0
    steps: int = 0
    latencies: list[float] = field(default_factory=list)
    first_tokens: list[float] = field(default_factory=list)
    waited: float = 0.0
    arrived: int = 0
    present: list[int] = field(default_factory=list)
    logical_tokens: int = 0
    computed_tokens: int = 0
    new_tokens: int = 0
    histories: list[int] = field(default_factory=list)
    bytes_per_session: list[float] = field(default_factory=list)
    tokens_per_session: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    loop_steps: int = 0
    failures: int = 0

    def summary(self) -> dict[str, float]:
        seconds = max(self.seconds, 1e-9)
        return {
            "seconds": self.seconds,
            "agent_steps": self.steps,
            "steps_per_second": self.steps / seconds,
            "latency_p50": quantile(self.latencies, 0.5),
            "latency_p95": quantile(self.latencies, 0.95),
            "latency_p99": quantile(self.latencies, 0.99),
            "first_token_p50": quantile(self.first_tokens, 0.5),
            "first_token_p95": quantile(self.first_tokens, 0.95),
            "share_without_work": self.waited / seconds,
            "arrived": self.arrived,
            "mean_agents": mean(self.present or [0.0]),
            "logical_tokens_per_second": self.logical_tokens / seconds,
            "computed_tokens_per_second": self.computed_tokens / seconds,
            "redundancy": self.computed_tokens / max(1, self.new_tokens),
            "mean_history": mean(self.histories or [0.0]),
            "bytes_per_session": mean(self.bytes_per_session or [0.0]),
            "tokens_per_session": mean(self.tokens_per_session or [0.0]),
            "resident_sessions": mean(self.resident or [0.0]),
            "engine_steps": self.loop_steps,
            "milliseconds_per_engine_step": 1000 * seconds / max(1, self.loop_steps),
            "failures": self.failures,
        }


class AgentLoad:
    """Steps an engine's loop with the workload, on one thread: what is measured is the engine, not a client."""

    def __init__(self, loop: EngineLoop, workload: AgentWorkload, at_work: int | None = None) -> None:
        """at_work: how many of the sessions begin at once; the others rest until `set_agents`."""
        self.loop = loop
        self.workload = workload
        self._draw = random.Random(workload.seed)
        self._agents: dict[GenerationRequest, AgentSession] = {}
        self._done: deque[tuple[GenerationRequest, FinishEvent]] = deque()
        self._thinking: list[tuple[float, int, AgentSession]] = []
        self._seeing: deque[tuple[AgentSession, Future[PreparedImage]]] = deque()
        self._numbers = count(1)
        self._youngest: SessionState | None = None  # with ages: what a session goes on from once it is the oldest
        self._resting: list[AgentSession] = []
        self._working = self._wanted = workload.sessions if at_work is None else at_work
        self._arrivals = Arrivals(workload.rate, workload.burst, workload.trace, self._draw)
        self._opened = time.perf_counter()
        vision = loop.model.config.vision
        self._screens = None
        if vision is not None and not workload.text_only:
            self._screens = Screens(workload.screen, vision, workload.changed)
        self._workers = ThreadPoolExecutor(8) if self._screens else None
        self.measurement = Measurement()
        self._sampling = SamplingParams(max_tokens=workload.generated_tokens, temperature=0.0, ignore_eos=True)

    def prepare(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Record what decodes, and age the sessions."""
        self.loop.runner.record_graphs(self.workload.sessions, adapted=False)
        if not self.workload.trace:
            self._populate(progress)

    def set_agents(self, count: int) -> None:
        """Let so many of the sessions be at work; the others rest from the ends of their steps on."""
        self._wanted = count
        while self._working < count and self._resting:
            self._working += 1
            self._come(self._resting.pop())

    def measure(self, warmup: float, seconds: float, progress: Callable[[str], None] = lambda _: None) -> Measurement:
        """Go on for a while, then measure."""
        self._opened = time.perf_counter()
        self._loop(time.perf_counter() + warmup, progress, "warming up")
        start = time_when_idle()
        result = self.measurement = Measurement()
        failures = self.loop.counters.failures
        before = (self.loop.counters.computed_tokens, self._new_tokens(), self.loop.counters.steps)
        self._loop(start + seconds, progress, "measuring")
        result.seconds = time_when_idle() - start
        result.computed_tokens = self.loop.counters.computed_tokens - before[0]
        result.new_tokens = self._new_tokens() - before[1]
        result.loop_steps = self.loop.counters.steps - before[2]
        result.failures = self.loop.counters.failures - failures
        return result

    def run_more(self, seconds: float) -> None:
        """Go on for a while, under a profiler."""
        self._loop(time.perf_counter() + seconds, lambda _: None, "")

    def _new_tokens(self) -> int:
        return self.loop.counters.appended_tokens + self.loop.counters.generated_tokens

    # ---- sessions ----

    def _populate(self, progress: Callable[[str], None]) -> None:
        """Sessions at all ages. One session is really computed through its life; the others are copies of it then.

        The copies own their memory: nothing is shared, so that reading it costs what it costs in earnest. As many as
        can decode at once begin somewhere in a cycle, the others with a prompt.
        """
        load = self.workload
        if load.group > 1:
            for _ in range(load.sessions // load.group):
                self._start_group()
            return
        model = self.loop.open()
        agents: list[AgentSession] = []
        youngest, oldest = load.ages or (0, load.steps)
        for done in range(load.sessions):
            age = youngest + done * (oldest - youngest) // load.sessions
            length = load.start_tokens + age * load.step_tokens
            if length > len(model.tokens):
                self.loop.append(model, self._tokens(length - len(model.tokens)))
                self._compute(model)
            if load.ages and self._youngest is None:
                self._youngest = self.loop.duplicate(model)
            agents.append(AgentSession(next(self._numbers), self.loop.duplicate(model), age))
            if done % 10 == 9:
                progress(f"aged {done + 1} of {load.sessions} sessions")
        self.loop.close(model)
        decoding = load.generated_tokens * max(1, self.loop.config.prefill_tokens // load.new_tokens)
        for place, agent in enumerate(self._draw.sample(agents, len(agents))):
            if place >= self._wanted:
                self._resting.append(agent)
            elif place < decoding:
                self._come(agent)
            else:
                self._begin_step(agent)

    def _come(self, agent: AgentSession) -> None:
        """Somewhere in a cycle: thinking, or in the middle of an answer, so that the load is steady from the beginning.

        Agents that all came with a prompt would stay in step for a minute.
        """
        thinking = sum(self.workload.think_seconds) / 2
        if self._draw.uniform(0, thinking + ANSWERED) > ANSWERED:
            at = time.perf_counter() + self._draw.uniform(0, thinking)
            heappush(self._thinking, (at, agent.number, agent))
        else:
            self._generate(agent, self._draw.randint(1, self.workload.generated_tokens))

    def _compute(self, session: SessionState) -> None:
        self.loop.submit(GenerationRequest(session, emit=lambda *_: None))
        while self.loop.requests:
            self.loop.step()

    def _start_group(self) -> None:
        """One prompt and first screenshot for a whole group; its members part ways with their first action."""
        load = self.workload
        leader = self.loop.open()
        self.loop.append(leader, self._tokens(load.start_tokens + load.new_tokens))
        group = AgentGroup(leader, load.group)
        for session in self.loop.fork(leader, load.group):
            self._generate(AgentSession(next(self._numbers), session, 0, group))

    def _end(self, agent: AgentSession) -> None:
        """A finished session makes place for a new one, a finished group for a new group."""
        self.loop.close(agent.session)
        if agent.group is None:
            if not self.workload.is_open:
                self._start()
            return
        agent.group.members -= 1
        if not agent.group.members:
            self.loop.close(agent.group.leader)
            self._start_group()

    def _start(self, life: Life | None = None) -> None:
        session = self.loop.open()
        self.loop.append(session, self._tokens(self.workload.start_tokens))
        self._begin_step(AgentSession(next(self._numbers), session, 0, life=life))

    # ---- steps ----

    def _begin_step(self, agent: AgentSession) -> None:
        agent.begun = time.perf_counter()
        if self._screens is None or self._workers is None:
            new = agent.life[agent.step].new_tokens if agent.life else self.workload.new_tokens
            self.loop.append(agent.session, self._tokens(new))
            self._generate(agent)
        else:
            self._seeing.append((agent, self._workers.submit(self._screens.next)))

    def _see(self) -> None:
        """Sessions whose screenshot is prepared get on with it."""
        for _ in range(len(self._seeing)):
            agent, future = self._seeing.popleft()
            if not future.done():
                self._seeing.append((agent, future))
                continue
            prepared = future.result()
            vision = self.loop.model.config.vision
            assert vision is not None
            tokens, first = vision.image_ids(prepared.image.tokens)
            text = self.workload.text_tokens - (len(tokens) - prepared.image.tokens)
            self.loop.append(agent.session, tokens + self._tokens(max(0, text)), [(first, prepared)])
            self._generate(agent)

    def _generate(self, agent: AgentSession, tokens: int | None = None) -> None:
        agent.begun = agent.begun or time.perf_counter()
        if agent.life:
            tokens = agent.life[agent.step].generated_tokens
        sampling = self._sampling if tokens is None else replace(self._sampling, max_tokens=tokens)
        request = GenerationRequest(agent.session, self._emit, sampling)
        self._agents[request] = agent
        self.loop.submit(request)

    def _emit(self, request: GenerationRequest, event: Event) -> None:
        if isinstance(event, TokenEvent):
            agent = self._agents[request]
            agent.first_token = agent.first_token or time.perf_counter()
        elif isinstance(event, FinishEvent):
            self._done.append((request, event))

    def _settle(self) -> None:
        """Take note of a finished step and begin the session's next one."""
        request, event = self._done.popleft()
        agent = self._agents.pop(request)
        now = time.perf_counter()
        result = self.measurement
        if event.error is not None:
            result.failures += 1
        result.steps += 1
        result.latencies.append(now - agent.begun)
        result.first_tokens.append(agent.first_token - agent.begun)
        tokens = len(agent.session.tokens)
        result.logical_tokens += tokens
        result.histories.append(tokens - self.workload.step_tokens)
        agent.step += 1
        agent.begun = agent.first_token = 0.0
        if agent.step >= (len(agent.life) if agent.life else self.workload.steps):
            self._end(agent)
            return
        if self.workload.ages and self._youngest and agent.step >= self.workload.ages[1]:
            self.loop.close(agent.session)
            agent.session, agent.step = self.loop.duplicate(self._youngest), self.workload.ages[0]
        if self._working > self._wanted:
            self._working -= 1
            self._resting.append(agent)
            return
        pause = agent.life[agent.step].pause if agent.life else self._draw.uniform(*self.workload.think_seconds)
        if pause > 0:
            heappush(self._thinking, (now + pause, agent.number, agent))
        else:
            self._begin_step(agent)

    def _loop(self, until: float, progress: Callable[[str], None], what: str) -> None:
        told = time.perf_counter()
        while (now := time.perf_counter()) < until:
            for life in self._arrivals.due(now - self._opened) if self.workload.is_open else ():
                self.measurement.arrived += 1
                self._start(life)
            while self._thinking and self._thinking[0][0] <= now:
                self._begin_step(heappop(self._thinking)[2])
            if self._seeing:
                self._see()
            if not self.loop.step():
                time.sleep(0.0005)  # all sessions think or prepare images: there is no event to wait for
                self.measurement.waited += time.perf_counter() - now
            while self._done:
                self._settle()
            self._sample_memory()
            if now - told > 5:
                told = now
                progress(f"{what}: {self.measurement.steps} steps, {until - now:.0f} s left")

    def _sample_memory(self) -> None:
        if self.loop.counters.steps % 10:
            return
        sessions, used, tokens = device_usage(self.loop)
        self.measurement.present.append(len(self.loop.sessions))
        if sessions:
            self.measurement.bytes_per_session.append(used / sessions)
            self.measurement.resident.append(sessions)
            self.measurement.tokens_per_session.append(tokens / sessions)

    def _tokens(self, number: int) -> list[int]:
        return random_tokens(self.loop.model.config, number, self._draw)
