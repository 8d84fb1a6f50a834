"""The 125 tasks: what kind each is, which published sets it belongs to, where its page is."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast

from holotron.env.task import Task

BENCHMARK = "miniwob"
WIDTH, HEIGHT = 160, 210

Reward = Literal["binary", "partial", "continuous"]


class MiniWoBError(ValueError):
    """A request that makes no sense: an unknown task, a script that fails in the page."""


class MiniWoBMissing(RuntimeError):
    """Something that must be installed is not; the message says the command that installs it."""


@dataclass(frozen=True)
class MiniWoBTask:
    """What is known about one task.

    split: BrowserGym's train (62) or test (63). webgum, pix2act: whether those papers evaluated it.
    reward: what an episode can give besides 1 and -1: nothing, a few values (partial), any value up to 1 (continuous).
    restart: whether a second episode in its page plays as in a page just loaded (`restarts.py` measures it).
    """

    name: str
    split: Literal["train", "test"]
    webgum: bool
    pix2act: bool
    reward: Reward
    restart: bool


@cache
def all_tasks() -> dict[str, MiniWoBTask]:
    """Every task by name, in alphabetical order."""
    with open(Path(__file__).with_name("tasks.csv"), newline="") as file:
        return {row["task"]: _task(row) for row in csv.DictReader(file)}


def find_task(name: str) -> MiniWoBTask:
    if name not in all_tasks():
        raise MiniWoBError(no_such_task(name))
    return all_tasks()[name]


def no_such_task(name: str) -> str:
    near = [known for known in all_tasks() if name.lower() in known or known in name.lower()]
    hint = f"did you mean {', '.join(near[:5])}?" if near else "names are those of MiniWoB++, such as click-test"
    return f"there is no MiniWoB++ task {name!r}; {hint}"


def as_task(name: str, seed: int | None = None) -> Task:
    """The task of that name for an environment. What it asks for is known once its page has drawn it."""
    return Task(text=name, benchmark=BENCHMARK, name=find_task(name).name, seed=seed)


@cache
def html_folder() -> Path:
    """The folder of the task pages, in the installed `miniwob` package (found without importing it)."""
    spec = find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise MiniWoBMissing("the MiniWoB++ pages are not installed: pip install 'holotron[eval]'")
    folder = Path(spec.submodule_search_locations[0]) / "html" / "miniwob"
    if not folder.is_dir():
        raise MiniWoBMissing(f"{folder} is missing: pip install --force-reinstall 'holotron[eval]'")
    return folder


@cache
def restartable() -> frozenset[str]:
    """The tasks whose next episode may begin in the page of the last."""
    return frozenset(name for name, task in all_tasks().items() if task.restart)


def task_url(name: str) -> str:
    return (html_folder() / f"{find_task(name).name}.html").as_uri()


def _task(row: dict[str, str]) -> MiniWoBTask:
    return MiniWoBTask(
        name=row["task"],
        split=cast(Literal["train", "test"], row["split"]),
        webgum=row["webgum_56"] == "1",
        pix2act=row["pix2act_59"] == "1",
        reward=cast(Reward, row["reward"]),
        restart=row["restart"] == "1",
    )
