"""Several protocols from one set of episodes, and the bundled policy in a real browser."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holotron.agent.baselines import RandomModel
from holotron.agent.in_process import loaded
from holotron.agent.policy_format import NANO, NANO_WIDGETS, BareJsonFormat, format_of
from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo, Outcome, PolicyInfo, Step
from holotron.episodes.store import EpisodeStore
from holotron.eval.evaluate import EvalError, Evaluation, evaluate, keep_manifest, report
from holotron.eval.html_report import write_html
from holotron.model.loading import find_checkpoint
from holotron.suites.suite import HELD_OUT_SEEDS, SuiteError, find_suite

NAMES = ("browsergym-125", "strict-125")
SUITE = find_suite("miniwob")


def evaluation(out: Path, names: tuple[str, ...] = NAMES, tasks: tuple[str, ...] = ("click-test",), **changes):  # type: ignore[no-untyped-def]
    protocols = tuple(SUITE.find_protocol(name, tasks) for name in names)
    return replace(Evaluation(SUITE, protocols, out, "random", NANO_WIDGETS), **changes)


def write(store: EpisodeStore, task: Task, steps: int, outcome: Outcome) -> None:
    seen = {"width": 160, "height": 210}
    with store.begin(task, PolicyInfo(model="x"), EnvironmentInfo(name="x")) as writer:
        for index in range(steps):
            writer.add_step(Step.model_validate({"index": index, "observation": seen, "timings": {"think": 2.0}}))
        writer.finish(outcome)


def test_one_episode_is_judged_by_each_protocol(tmp_path: Path) -> None:
    run = evaluation(tmp_path, (*NAMES, "pix2act-58"), ("click-test", "circle-center"), seeds=(1, 2))
    store, done = EpisodeStore(tmp_path), Outcome(reason="done", reward=0.5)
    write(store, SUITE.task("click-test", 1), 1, done)
    write(store, SUITE.task("circle-center", 1), 2, Outcome(reason="done", reward=0.95))
    write(store, SUITE.task("click-test", 2), 10, Outcome(reason="step_limit", success=False, reward=0.0))
    write(store, SUITE.task("circle-center", 2), 1, Outcome(reason="infrastructure"))
    write(store, SUITE.task("click-test", 3), 1, done)  # of no protocol
    found = report(run)
    loose, strict, long = (found["protocols"][name] for name in (*NAMES, "pix2act-58"))
    assert (loose["successes"], loose["episodes"], loose["missing"]) == (2, 3, 1)
    assert (strict["successes"], strict["episodes"]) == (1, 3)
    assert [(row["task"], row["success_rate"]) for row in loose["tasks"]] == [("click-test", 0.5), ("circle-center", 1)]
    assert found["success_rate"] == loose["success_rate"] == 2 / 3
    assert found["think_seconds"] == {"median": 2.0, "p95": 2.0, "longest": 2.0}
    assert long["max_steps"] == 30
    write_html(found | {"policy": "<b>", "infrastructure_failures": 1}, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<title>miniwob, &lt;b&gt;</title>" in page
    assert page.index("<td>circle-center</td><td>1 of 1</td>") < page.index("<td>click-test</td><td>1 of 2</td>")


def test_an_episode_with_more_steps_than_a_protocol_allows_is_its_failure(tmp_path: Path) -> None:
    run = evaluation(tmp_path, ("browsergym-125", "pix2act-58"), seeds=(1,))
    assert [task.extra for task in run.tasks] == [{"max_steps": 30}]
    write(EpisodeStore(tmp_path), run.tasks[0], 11, Outcome(reason="done", reward=1.0))
    found = report(run)["protocols"]
    assert [found[name]["successes"] for name in ("browsergym-125", "pix2act-58")] == [0, 1]


@pytest.mark.parametrize("workers", [1, 2])
def test_random_actions_are_played_and_counted(tmp_path: Path, workers: int) -> None:
    run = evaluation(tmp_path, tasks=("click-test", "click-button"), seeds=(1, 2), sessions=2, workers=workers)
    changes: list[int] = []
    result = asyncio.run(evaluate(run, RandomModel(), lambda counters: changes.append(counters.finished)))
    for name in NAMES:
        assert result["protocols"][name]["episodes"] == 4
        assert result["protocols"][name]["missing"] == 0
    assert result["infrastructure_failures"] == 0
    assert changes[-1] == 4
    assert 0 < result["steps_per_second"] < result["playing_steps_per_second"]
    again = asyncio.run(evaluate(run, RandomModel()))
    assert (again["episodes"], again["steps_per_second"]) == (4, 0)


def test_the_bundled_policy_solves_what_it_is_for(tmp_path: Path) -> None:
    """Held-out seeds of tasks it is sure of: something broke on the way from weights to mouse if it fails at them."""
    folder = find_checkpoint("holotron-nano")
    assert format_of(folder) == NANO
    tasks = ("click-test", "login-user", "enter-date", "choose-list", "click-dialog-2")
    run = evaluation(tmp_path, ("browsergym-125",), tasks, seeds=(HELD_OUT_SEEDS[3],), sessions=2)
    run = replace(run, protocols=(replace(run.protocols[0], max_steps=6),))
    with loaded(folder, "cpu") as policy:
        result = asyncio.run(evaluate(run, policy))
    assert result["successes"] >= 4


def test_random_actions_on_held_out_pages_win_nothing_but_end_whole(tmp_path: Path) -> None:
    suite = find_suite("pages")
    protocol = replace(suite.find_protocol("held-out"), episodes_per_task=1)
    run = Evaluation(suite, (protocol,), tmp_path, "random", BareJsonFormat(suite.kinds), sessions=3)
    found = asyncio.run(evaluate(run, RandomModel()))
    assert [row["task"] for row in found["tasks"]] == list(suite.names("held-out"))
    assert (found["missing"], found["infrastructure_failures"]) == (0, 0)
    assert found["episodes"] == len(suite.names("held-out"))
    infos = EpisodeStore(tmp_path).list_episodes()
    assert {info.task.seed for info in infos} == {HELD_OUT_SEEDS[0]}
    assert all(0 < (info.step_count or 0) <= 15 for info in infos)
    assert found["success_rate"] < 0.5


def test_one_folder_one_evaluation(tmp_path: Path) -> None:
    asyncio.run(evaluate(evaluation(tmp_path, ("browsergym-125",), seeds=(1,), policy="scripted"), None))
    other = evaluation(tmp_path, ("strict-125",), seeds=(1,), policy="scripted")
    with pytest.raises(EvalError, match="protocols differs"):
        asyncio.run(evaluate(other, None))
    held = find_suite("pages")
    keep_manifest(tmp_path / "pages", evaluation(tmp_path, suite=held).manifest)
    held.view = (800, 600)
    with pytest.raises(EvalError, match="view differs"):
        keep_manifest(tmp_path / "pages", evaluation(tmp_path, suite=held).manifest)


def test_where_there_is_no_teacher_none_can_play(tmp_path: Path) -> None:
    with pytest.raises(EvalError, match="1 tasks have no teacher, draw-circle among them"):
        asyncio.run(evaluate(evaluation(tmp_path, tasks=("click-test", "draw-circle")), None))
    assert not (tmp_path / "run.json").exists()


def test_what_a_suite_has_not_is_named() -> None:
    for choose, complaint in (
        (lambda: find_suite("sites"), "there is no suite 'sites'; there are miniwob, pages, web"),
        (lambda: SUITE.find_protocol("mine"), "there is no protocol 'mine' of miniwob; there are browsergym-125"),
        (lambda: SUITE.find_protocol("pix2act-58", ["ascending-numbers"]), "is no task of pix2act-58"),
        (lambda: SUITE.find_protocol("strict-125", split="dev"), "no split 'dev' of miniwob; choose train or test"),
        (lambda: SUITE.select(["draw-circle"]), "draw-circle has no teacher"),
        (lambda: find_suite("pages").select(["nothing"]), "there is no task 'nothing' in pages"),
    ):
        with pytest.raises(SuiteError, match=complaint):
            choose()


def test_training_seeds_end_where_held_out_ones_begin() -> None:
    assert [task.seed for task in SUITE.training_tasks(["click-test"], 10**9 - 2, 2)] == [10**9 - 2, 10**9 - 1]
    with pytest.raises(SuiteError, match="held out"):
        SUITE.training_tasks(["click-test"], 10**9 - 1, 2)


def test_more_training_tasks_begin_with_the_fewer() -> None:
    names = SUITE.select(split="train")
    few, many = (SUITE.training_tasks(names, 7, count) for count in (len(names) + 3, 3 * len(names)))
    assert many[: len(few)] == few
    assert {task.name for task in few[: len(names)]} == set(names)
    assert {task.seed for task in many} == {7, 8, 9}
