"""Simulated agents beside what was measured on one H200, and the number of them that it holds."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from holotron.cli.main import app
from holotron.engine.pace import SchedulerConfig
from holotron.model.presets import preset
from holotron.plan.agents import AgentSimulation, predicted_held, simulated
from holotron.plan.efficiency import MEASURED, Efficiency
from holotron.plan.errors import PlanError
from holotron.plan.gpus import gpu
from holotron.plan.memory import Precision
from holotron.plan.roofline import StepTimes
from holotron.plan.workload import Workload, parse_seconds

THINKS = (4.0, 8.0)
# The engine of 2026-11-15 to 17, before its kernels for prompts were faster.
EARLIER = Efficiency(step_overhead=0.003, token_overhead=8.5e-6, prompt_overhead=0.006)
AS_THEY_COME, PACED = (SchedulerConfig(prefill_tokens=2560, prefill_every=every, max_running=512) for every in (1, 0))


def times(workload: Workload, weights: str = "bf16", kv: str = "bf16", engine: Efficiency = MEASURED) -> StepTimes:
    return StepTimes(preset("holotron-12b").config, gpu("H200"), workload, Precision(weights, kv, 16), engine)


# benchmarks/results/latency, 2026-11-19; the last four of 2026-11-15, when prompts were taken up as they came.
@pytest.mark.parametrize(
    ("sessions", "text_only", "weights", "kv", "ages", "engine", "measured"),
    [
        (100, True, "bf16", "bf16", (8, 11), MEASURED, 7.44),
        (100, False, "bf16", "bf16", (8, 11), MEASURED, 6.05),
        (100, True, "bf16", "fp8", None, MEASURED, 7.66),
        (100, True, "fp8", "fp8", (8, 11), MEASURED, 11.17),
        (100, False, "fp8", "fp8", (8, 11), MEASURED, 8.40),
        (100, True, "bf16", "bf16", (8, 11), EARLIER, 7.05),
        (30, True, "bf16", "bf16", None, EARLIER, 6.09),
        (100, False, "bf16", "bf16", None, EARLIER, 5.87),
        (30, False, "bf16", "bf16", None, EARLIER, 5.14),
    ],
)
def test_closed_loops_are_near_what_was_measured(sessions, text_only, weights, kv, ages, engine, measured):
    load = Workload(sessions=sessions, image_tokens=2304, text_only=text_only)
    config, near = (PACED, 0.03) if engine is MEASURED else (AS_THEY_COME, 0.05)
    found = simulated(times(load, weights, kv, engine), load, config, ages=ages)
    assert found["steps_per_second"] == pytest.approx(measured, rel=near)
    assert found["latency_p50"] == pytest.approx(sessions / measured, rel=0.06)


@pytest.mark.parametrize(
    ("agents", "text_only", "p50", "p95"),
    [(30, True, 3.5, 4.5), (70, True, 7.8, 9.3), (100, True, 11.3, 12.4), (30, False, 4.7, 6.0), (50, False, 7.7, 9.1)],
)
def test_latencies_of_agents_that_think_are_near_those_measured(agents, text_only, p50, p95):
    load = Workload(sessions=agents, image_tokens=2304, text_only=text_only)
    found = simulated(times(load, engine=EARLIER), load, AS_THEY_COME, think=THINKS, ages=(8, 11))
    assert found["latency_p50"] == pytest.approx(p50, rel=0.1)
    assert found["latency_p95"] == pytest.approx(p95, rel=0.1)
    # Steps, agents and seconds belong together, however the window fell.
    assert found["steps_per_second"] == pytest.approx(agents / (found["latency_p50"] + 6), rel=0.05)


def test_agents_held_are_those_measured_and_more_when_paced():
    """About 25 were measured."""
    load = Workload(image_tokens=2304)
    held = [
        predicted_held(times(load, engine=engine), load, config, think=THINKS, within=5.0, most=100, ages=(8, 11))[
            "agents"
        ]
        for config, engine in ((AS_THEY_COME, EARLIER), (PACED, MEASURED))
    ]
    assert 23 <= held[0] <= 27
    assert held[1] > 1.4 * held[0]


def test_nobody_comes_and_nobody_is_lost():
    load = Workload(sessions=7, image_tokens=2304, generated_tokens=9)
    simulation = AgentSimulation(times(load), load, PACED, newcomers=[(1.0, 5000), (2.0, 3)])
    simulation.run(30.0)
    assert sum(step.is_newcomer for step in simulation.steps) == 2
    assert len(simulation.requests) == 7
    assert simulation.now >= 30.0


def test_the_command_tells_how_many_agents_are_held():
    words = ["plan", "holotron-12b", "--gpu", "H200", "--state", "16", "--checkpoints", "0", "--against", "none"]
    shown = CliRunner().invoke(app, [*words, "--think", "4-8"])
    assert shown.exit_code == 0, shown.output
    told = json.loads(CliRunner().invoke(app, [*words, "--think", "4-8", "--within", "8", "--json"]).stdout)["held"]
    (held,) = told
    assert held["agents"] > 45
    assert held["latency_p95"] <= 8.0
    assert "agents that think 4 to 8 s have 95% of their steps answered within 5 s" in " ".join(shown.output.split())
    refused = CliRunner().invoke(app, [*words, "--think", "soon"])
    assert refused.exit_code == 2


@pytest.mark.parametrize("text", ["8-4", "-4", "", "4-", "four"])
def test_seconds_that_are_none(text):
    with pytest.raises(PlanError, match="write seconds"):
        parse_seconds("--think", text)
    assert parse_seconds("--think", "1.5") == (1.5, 1.5)
