"""What all tests share."""

import asyncio
import gc
import inspect
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Tests run side by side, one process per core: threads inside them would only get in each other's way.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # and in those that they start
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# How long an example takes depends on who else is at work on the machine.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Triton reads this when it is first imported, by whomever: without a GPU its kernels are interpreted.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


# They take longest: a process that began one at the end would be the last at work.
LONGEST = ("test_loop_closes.py", "test_pipeline.py", "test_distributed.py", "test_schema.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Twice as many as there are cores: tests that wait for browsers and servers left a third of them idle."""
    return 2 * (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """An async test runs in the event loop of the browsers' world where it is given one, else in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    run = given["world"].run if "world" in given else asyncio.run
    run(pyfuncitem.obj(**given))
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Each process imports all tests: what that makes stays, and is not looked through for garbage again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def begun() -> Callable[[], list[BaseProcess]]:
    """The child processes that began in this test: servers that many tests ask are children, too."""
    before = multiprocessing.active_children()
    return lambda: [child for child in multiprocessing.active_children() if child not in before]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder in memory where there is such a place: thousands of syncs are slow on a disk others use too."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared, prefix="holotron-test-") as name:
        yield Path(name)
