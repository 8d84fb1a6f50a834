"""Agents that think between steps, simulated with the times of a 12B on an H200: the scheduler and its goals."""

from __future__ import annotations

import pytest

from holotron.engine.errors import EngineError
from holotron.engine.pace import SMALLEST_PIECE, Pace, SchedulerConfig
from holotron.model.presets import preset
from holotron.plan.agents import AgentSimulation, simulated
from holotron.plan.gpus import gpu
from holotron.plan.memory import Precision
from holotron.plan.roofline import StepTimes
from holotron.plan.workload import Workload

LOAD = Workload(image_tokens=2304)
TIMES = StepTimes(preset("holotron-12b").config, gpu("H200"), LOAD, Precision(state_bits=16))
THINKS, CLOSED = (4.0, 8.0), (0.0, 0.0)
AGES = (8, 11)


def config(every: int = 0, **goals: float) -> SchedulerConfig:
    return SchedulerConfig(prefill_tokens=2560, prefill_every=every, **goals)


def run(agents: int, think: tuple[float, float] = THINKS, every: int = 0, **goals: float) -> dict[str, float]:
    load = Workload(image_tokens=2304, sessions=agents)
    return simulated(TIMES, load, config(every, **goals), think=think, ages=AGES)


def gaps(agents: int, think: tuple[float, float], **goals: float) -> float:
    """The longest wait for a token that one session in twenty sees in a step."""
    load = Workload(image_tokens=2304, sessions=agents)
    simulation = AgentSimulation(TIMES, load, config(**goals), think=think, ages=AGES)
    simulation.run(60)
    simulation.steps.clear()
    simulation.run(180)
    return sorted(step.longest_gap for step in simulation.steps)[int(len(simulation.steps) * 0.95)]


@pytest.mark.parametrize(("agents", "gain"), [(30, 1.1), (45, 1.15), (70, 1.15), (100, 1.05)])
def test_agents_do_not_fall_into_step(agents: int, gain: float) -> None:
    """Taken up as they come, prompts leave the device idle while all agents think; paced, they do not."""
    as_they_come, paced = run(agents, every=1), run(agents)
    assert as_they_come["share_without_work"] > 0.08
    assert paced["share_without_work"] < 0.05
    assert paced["steps_per_second"] > gain * as_they_come["steps_per_second"]
    assert paced["latency_p50"] < 0.9 * as_they_come["latency_p50"]
    assert paced["latency_p95"] < 0.9 * as_they_come["latency_p95"]


@pytest.mark.parametrize(("agents", "think"), [(30, CLOSED), (100, CLOSED), (200, THINKS)])
def test_nothing_is_lost_where_there_is_always_work(agents: int, think: tuple[float, float]) -> None:
    as_they_come = run(agents, think, every=1)["steps_per_second"]
    assert run(agents, think)["steps_per_second"] > 0.99 * as_they_come
    assert run(agents, think, target_token_latency=0.06)["steps_per_second"] > 0.98 * as_they_come
    assert run(agents, think, target_step_latency=5.0)["steps_per_second"] > 0.96 * as_they_come


def test_few_agents_and_short_prompts_do_not_wait_long() -> None:
    assert run(5)["latency_p95"] < 1.05 * run(5, every=1)["latency_p95"]
    short = Pace(config())
    short.step(2, 500, [])
    short.ended()
    short.began(100)
    for _ in range(100):
        assert short.allows(50, begun=False)
        short.step(2, 1, [100])


def paced(decoding: int, ends: int) -> Pace:
    """A pace that has seen so many sessions in the middle of answers of 128 tokens, until some have ended."""
    pace = Pace(config())
    pace.began(2368)
    for step in range(1, ends * 128 // decoding + 1):
        pace.step(decoding, decoding, [])
        if step % (128 // decoding) == 0:
            pace.ended()
    return pace


def test_the_length_of_answers_is_known_although_those_that_end_first_are_short() -> None:
    """A mean of the lengths that ended would say 4, 6, 8 tokens, and prompts would begin in every step."""
    for ends in (1, 2, 3, 30):
        assert paced(32, ends).steps == pytest.approx(4.0)


def test_no_more_sessions_decode_than_there_usually_are_requests() -> None:
    pace = paced(32, 100)
    assert pace.allows(31, begun=False)
    assert not pace.allows(32, begun=False)
    pace.step(33, 32, [])  # one that waits is one more at hand: answers without an end do not keep it out
    assert pace.allows(32, begun=False)
    few = paced(4, 10)  # where prompts are rare, one more holds nobody up
    assert few.allows(8, begun=False)


def test_prompts_are_cut_for_the_pace_of_tokens() -> None:
    """A prompt of a whole step makes all decoding sessions wait 0.15 s; pieces of it do not."""
    assert gaps(40, THINKS) > 0.13
    for goal in (0.1, 0.06):
        assert gaps(40, THINKS, target_token_latency=goal) < goal + SMALLEST_PIECE * 0.00008
    # Where prompts are due in every step, there are no steps to spread them over.
    assert gaps(100, CLOSED, target_token_latency=0.06) > 0.13


def test_a_goal_for_steps_shortens_the_slowest() -> None:
    for agents in (40, 50, 70):
        plain, aimed = run(agents), run(agents, target_step_latency=5.0)
        assert aimed["latency_p95"] < 0.97 * plain["latency_p95"]
        assert aimed["steps_per_second"] > 0.98 * plain["steps_per_second"]


@pytest.mark.parametrize("agents", [20, 40])
def test_a_burst_of_long_prompts_does_not_hold_up_the_others(agents: int) -> None:
    """Every 20 s four agents come with 20,000 tokens each. They wait longer, but not without an end."""
    ordinary, newcomers = [], []
    for goals in ({}, {"target_step_latency": 5.0}):
        load = Workload(image_tokens=2304, sessions=agents)
        coming = [(60.0 + 20 * burst, 20_000) for burst in range(10) for _ in range(4)]
        simulation = AgentSimulation(TIMES, load, config(**goals), think=THINKS, ages=AGES, newcomers=coming)
        simulation.run(300)
        latencies = [sorted(s.latency for s in simulation.steps if s.is_newcomer is new) for new in (False, True)]
        assert len(latencies[1]) == len(coming)
        ordinary.append(latencies[0][int(len(latencies[0]) * 0.95)])
        newcomers.append(latencies[1][-1])
    assert ordinary[1] < 0.97 * ordinary[0]
    assert newcomers[1] < 1.1 * newcomers[0]


def test_tokens_that_a_grammar_forces_do_not_wait() -> None:
    """They are a piece of several tokens, like a short prompt, in the middle of an answer."""
    load = Workload(image_tokens=2304, sessions=1)
    simulation = AgentSimulation(TIMES, load, config())
    simulation.run(1.0)
    (request,) = simulation.requests
    assert request.generated
    simulation.scheduler.pace.ended()
    for _ in range(20):
        simulation.scheduler.pace.step(1, 1, [2368])
    assert not simulation.scheduler.pace.allows(1, begun=True)
    request.session.tokens.extend([0] * 5)
    other = AgentSimulation(TIMES, load, config()).requests[0]
    plan = simulation.scheduler.plan([request, other], (), 1)
    assert plan.prefill == [(request, request.session.uncomputed)]


def test_a_goal_must_be_above_zero() -> None:
    with pytest.raises(EngineError, match=r"target_step_latency is 0\.0; it must be above 0"):
        config(target_step_latency=0.0)
