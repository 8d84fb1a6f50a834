"""Agents that think between steps, simulated with the times of a 12B on an H200: how often prompts are taken up."""

from __future__ import annotations

import heapq
import random

import pytest

from holotron.engine.pace import Pace

PROMPT, DECODE, PER_SESSION = 0.125, 0.0135, 0.00006  # seconds: of a step with a prompt, of one without, for a session
ANSWER, BUDGET, SCREENSHOT = 128, 2560, 2368  # tokens


def simulate(agents: int, think: tuple[float, float], pace: Pace | None, until: float = 300.0) -> dict[str, float]:
    """Steps per second, median and 95th percentile of their latency, and the idle share, after a minute."""
    draw = random.Random(0)
    decoding = {agent: draw.randint(1, ANSWER) for agent in range(agents)}
    begun = dict.fromkeys(decoding, 0.0)
    thinking: list[tuple[float, int]] = []
    waiting: list[int] = []
    latencies, now, idle, since = list[float](), 0.0, 0.0, 0
    while now < until:
        while thinking and thinking[0][0] <= now:
            begun_at, agent = heapq.heappop(thinking)
            begun[agent] = begun_at
            waiting.append(agent)
        since += 1
        takes = bool(waiting) and (since >= (pace.steps if pace else 1) or not decoding)
        if pace:
            pace.step(len(waiting) + len(decoding), [SCREENSHOT] if takes else [])
        if not takes and not decoding:
            idle += thinking[0][0] - now if now > 60 else 0.0
            now = thinking[0][0]
            continue
        now += (PROMPT if takes else DECODE) + PER_SESSION * len(decoding)
        ended = [agent for agent, left in decoding.items() if left == 1]
        decoding = {agent: left - 1 for agent, left in decoding.items() if left > 1}
        if takes:
            decoding[waiting.pop(0)] = ANSWER - 1
            since = 0
        for agent in ended:
            if pace:
                pace.ended(ANSWER)
            if now > 60:
                latencies.append(now - begun[agent])
            heapq.heappush(thinking, (now + draw.uniform(*think), agent))
    latencies.sort()
    share = [latencies[int(len(latencies) * part)] for part in (0.5, 0.95)]
    return {"rate": len(latencies) / (until - 60), "p50": share[0], "p95": share[1], "idle": idle / (until - 60)}


@pytest.mark.parametrize(("agents", "gain"), [(45, 1.1), (70, 1.15), (100, 1.1)])
def test_agents_do_not_fall_into_step(agents: int, gain: float) -> None:
    """Taken up as they come, prompts leave the device idle while all agents think; paced, they do not."""
    as_they_come, paced = (simulate(agents, (4.0, 8.0), pace) for pace in (None, Pace(BUDGET)))
    assert as_they_come["idle"] > 0.1
    assert paced["idle"] < 0.01
    assert paced["rate"] > gain * as_they_come["rate"]
    assert paced["p50"] < as_they_come["p50"]
    assert paced["p95"] < as_they_come["p95"]


@pytest.mark.parametrize(("agents", "think"), [(30, (0.0, 0.0)), (100, (0.0, 0.0)), (200, (4.0, 8.0))])
def test_nothing_is_lost_where_there_is_always_work(agents: int, think: tuple[float, float]) -> None:
    as_they_come, paced = (simulate(agents, think, pace) for pace in (None, Pace(BUDGET)))
    assert paced["rate"] > 0.99 * as_they_come["rate"]


def test_few_agents_and_short_prompts_do_not_wait_long() -> None:
    as_they_come, paced = (simulate(5, (4.0, 8.0), pace) for pace in (None, Pace(BUDGET)))
    assert paced["p95"] < 1.05 * as_they_come["p95"]
    short = Pace(BUDGET)
    short.ended(500)
    short.step(2, [100])
    assert short.steps == 1
