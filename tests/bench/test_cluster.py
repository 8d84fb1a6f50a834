"""The simulated cluster: what is known by hand comes out, and no agent is lost in failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holotron.bench.cluster import ClusterInputs, ClusterPlan, Simulation

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
CALM = ClusterPlan(replicas=4, agents=20, minutes=10, replica_hours=1e9, host_hours=1e9)


@pytest.fixture(scope="module")
def inputs() -> ClusterInputs:
    return ClusterInputs.read(RESULTS, photos=False)


def test_engines_are_the_limit_until_a_front_is(inputs: ClusterInputs) -> None:
    quick = Simulation(CALM, replace(inputs, front_seconds=0.001)).run()
    assert quick["steps_per_second"] == pytest.approx(4 * inputs.steps_per_second, rel=0.03)
    assert quick["rebuilt"] == quick["moved"] == quick["replicas_failed"] == 0
    slow = Simulation(CALM, replace(inputs, front_seconds=0.1)).run()
    assert slow["steps_per_second"] == pytest.approx(10, rel=0.03)
    assert slow["first_limit"] == "a front's HTTP process"
    assert slow["replicas_at_the_first_limit"] == int(10 / inputs.steps_per_second)
    two = Simulation(replace(CALM, fronts=2), replace(inputs, front_seconds=0.1)).run()
    assert two["steps_per_second"] == pytest.approx(20, rel=0.03)


def test_agents_go_on_through_failures(inputs: ClusterInputs) -> None:
    run = Simulation(replace(CALM, replica_hours=0.1, repair=30), inputs)
    report = run.run()
    assert report["replicas_failed"] > 2
    assert report["rebuilt"] > 20
    assert report["moved"] > 0
    homes = [number for replica in run._replicas for number in replica.sessions]
    assert len(homes) == len(set(homes))
    waiting = {number for _, _, what, number, life in run._events if what in ("front", "engine", "told")}
    assert waiting == set(range(80))
    assert 0.5 < report["share_of_all_replicas"] < 1
