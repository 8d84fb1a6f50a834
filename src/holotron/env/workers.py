"""Worker processes that do not outlive the one that started them, and what is done when one is asked to end."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext
from typing import Any

SECONDS_TO_FINISH = 20.0


def with_torch() -> ForkServerContext:
    """How processes that compute begin: forked from one that has imported PyTorch, which takes each by itself a second.

    That one is started with the first of them, with the environment of then. It imports nothing else: looking for a
    GPU, as some modules here do, would keep its children from using it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    return context


def end_with_parent() -> None:
    """For a worker to call when it begins: once its parent is gone, however that came, it is asked to end.

    A worker that handles SIGTERM can finish what it writes; after a while it is ended anyway.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_FINISH)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


@contextmanager
def stop_signals(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Inside, Ctrl-C and SIGTERM call the handler. Only the main thread can have that; in others nothing changes."""
    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM) if here}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def portable(error: Exception, otherwise: type[Exception]) -> Exception:
    """The error itself where it can cross to another process, else one of the other type that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return otherwise(f"{type(error).__name__}: {error}")
