"""The facts about the tasks, the protocols, and what is said when something is missing."""

from __future__ import annotations

import inspect
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holotron.suites.miniwob import tasks
from holotron.suites.miniwob.environment import MiniWoBConfig
from holotron.suites.miniwob.suite import MiniWoBSuite
from holotron.suites.miniwob.tasks import (
    MiniWoBError,
    MiniWoBMissing,
    all_tasks,
    find_task,
    html_folder,
    restartable,
    task_url,
)
from holotron.suites.suite import HELD_OUT_SEEDS, TRAINING_SEEDS, SuiteError

SUITE = MiniWoBSuite()


def test_there_are_125_tasks_in_the_published_sets() -> None:
    known = all_tasks().values()
    assert len(known) == 125
    assert list(all_tasks()) == sorted(all_tasks())
    assert Counter(task.split for task in known) == {"train": 62, "test": 63}
    assert sum(task.webgum for task in known) == 56
    assert sum(task.pix2act for task in known) == 58
    assert Counter(task.reward for task in known) == {"binary": 105, "partial": 15, "continuous": 5}


def test_pages_are_restarted_where_that_was_measured_to_change_nothing() -> None:
    path = Path(__file__).parents[2] / "benchmarks/results/miniwob-restarts.json"
    measured = json.loads(path.read_text(encoding="utf-8"))["tasks"]
    assert [each["task"] for each in measured] == list(all_tasks())
    assert restartable() == {each["task"] for each in measured if each["restarted"] and not each["different"]}


def test_every_task_has_its_page_in_the_package() -> None:
    pytest.importorskip("miniwob")
    pages = {path.stem for path in html_folder().glob("*.html")}
    assert set(all_tasks()) <= pages
    # Left out of the 125 by everyone: they cannot be played by single actions.
    assert pages - set(all_tasks()) == {"button-delay", "chase-circle", "hover-shape", "moving-items", "simon-says"}
    assert task_url("click-test").startswith("file://")


def test_the_kinds_of_reward_are_what_the_package_documents() -> None:
    envs: Any = pytest.importorskip("miniwob.envs.miniwob_envs")
    documented = {
        thing.subdomain: thing.__doc__ or ""
        for thing in vars(envs).values()
        if inspect.isclass(thing) and getattr(thing, "subdomain", None)
    }
    for name, task in all_tasks().items():
        assert (task.reward != "binary") == ("**Partial reward:**" in documented[name]), name
        assert (task.reward == "continuous") == ("continuous value" in documented[name]), name


def test_an_unknown_task_gets_a_hint() -> None:
    with pytest.raises(MiniWoBError, match="did you mean click-button, click-button-sequence"):
        find_task("button")
    with pytest.raises(MiniWoBError, match="no MiniWoB\\+\\+ task 'xyz'"):
        find_task("xyz")


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "find_spec", lambda _: None)
    with pytest.raises(MiniWoBMissing, match=r"pip install 'holotron\[eval\]'"):
        html_folder.__wrapped__()


def test_the_four_protocols() -> None:
    shapes = {p.name: (len(p.tasks), p.episodes_per_task, p.max_steps, p.rule) for p in SUITE.protocols()}
    assert shapes == {
        "browsergym-125": (125, 5, 10, "positive"),
        "strict-125": (125, 5, 10, "strict"),
        "pix2act-58": (58, 100, 30, "positive"),
        "webgum-56": (56, 100, 30, "full"),
    }
    with pytest.raises(SuiteError, match="browsergym-125, strict-125, pix2act-58, webgum-56"):
        SUITE.find_protocol("all")


def test_evaluation_never_plays_a_training_seed() -> None:
    assert not set(TRAINING_SEEDS[-5:]) & set(HELD_OUT_SEEDS[:5])
    assert TRAINING_SEEDS.stop <= HELD_OUT_SEEDS.start
    for protocol in SUITE.protocols():
        assert all(seed in HELD_OUT_SEEDS and seed not in TRAINING_SEEDS for seed in protocol.seeds)
        assert len(set(protocol.seeds)) == protocol.episodes_per_task
        assert protocol.seeds == SUITE.find_protocol(protocol.name).seeds
    assert SUITE.find_protocol("pix2act-58").seeds[:5] == SUITE.find_protocol("strict-125").seeds


def test_what_counts_as_success() -> None:
    assert SUITE.is_success("positive", "click-checkboxes", 0.2)
    assert not SUITE.is_success("positive", "click-checkboxes", 0.0)
    assert not SUITE.is_success("strict", "click-checkboxes", 0.95)
    assert SUITE.is_success("strict", "circle-center", 0.95)
    assert not SUITE.is_success("strict", "circle-center", 0.85)
    assert not SUITE.is_success("full", "circle-center", 0.95)
    assert SUITE.is_success("full", "odd-or-even", 1 / 3 + 1 / 3 + 1 / 3)
    for rule in ("positive", "full", "strict"):
        assert SUITE.is_success(rule, "click-test", 1.0)
        assert not SUITE.is_success(rule, "click-test", -1.0)
        assert not SUITE.is_success(rule, "circle-center", math.nan)


@pytest.mark.parametrize("wrong", [{"pages": 0}, {"browsers": 0}, {"time_limit": 0}, {"settle": -1}, {"settle": 60}])
def test_bad_configurations_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(MiniWoBError, match=f"MiniWoBConfig.{next(iter(wrong))}"):
        MiniWoBConfig(**wrong)


def test_data_files_lie_beside_the_code() -> None:
    folder = Path(tasks.__file__).parent
    assert all((folder / name).is_file() for name in ("tasks.csv", "page.js", "page_inspector.js"))
