"""Copies of one model, each with an engine in a process of its own, for worker processes to share.

A small policy costs a GPU next to nothing, and Python milliseconds a step, which one process spends on one core.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Self

from holotron.agent.chat import Chat, ModelUnavailable
from holotron.agent.hosted_model import ModelHandle, ModelHost
from holotron.env.workers import end_with_parent, portable, with_torch

if TYPE_CHECKING:
    from holotron.agent.in_process import EngineModel

GONE = "a process that holds a copy of the model has ended"
PATIENCE = 15.0  # seconds in which a process that is told to end gives back what it holds

OpenCopy = Callable[[], AbstractContextManager["EngineModel"]]  # can be pickled


class ModelProcesses:
    """So many copies, while the context is open. Workers are given their handles; others cannot talk to them.

    open_copy: called in each process. What hinders one from loading is raised when the context is entered.
    """

    def __init__(self, count: int, name: str, open_copy: OpenCopy) -> None:
        self.count, self.name, self.handles = count, name, list[ModelHandle]()
        self._open_copy = open_copy
        self._ends, self._processes = list[Connection](), list[BaseProcess]()
        self._gone = False  # what a connection says of a process is known before what the system says
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        context = with_torch()
        with ExitStack() as stack:
            for _ in range(self.count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_main, args=(self._open_copy, theirs), daemon=True)
                process.start()
                theirs.close()
                self._ends.append(ours)
                self._processes.append(process)
                stack.callback(_join, process)
            for end in self._ends:
                stack.callback(end.close)  # which tells its process to end, all of them before one is waited for
            self.handles = self._hear()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self) -> None:
        """ModelUnavailable: a process is gone."""
        if self._gone or any(not process.is_alive() for process in self._processes):
            raise ModelUnavailable(GONE)

    def call(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What the function makes of each copy and the arguments, in its process; ModelUnavailable if one is gone."""
        for end in self._ends:
            with suppress(OSError):  # which is told below
                end.send((function, arguments))
        return self._hear()

    def _hear(self) -> list[Any]:
        """What all of them say next; an error of one is raised here, once all have said something."""
        said = []
        for end in self._ends:
            try:
                said.append(end.recv())
            except (EOFError, OSError):
                self._gone = True
                said.append(ModelUnavailable(GONE))
        if errors := [each for each in said if isinstance(each, Exception)]:
            raise errors[0]
        return said

    async def open(self) -> Chat:
        raise ModelUnavailable(f"{self.name} is in {self.count} processes, which only workers ask")


def _join(process: BaseProcess) -> None:
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()


def _main(open_copy: OpenCopy, parent: Connection) -> None:
    """The life of a process that holds a copy: it does what it is told until its parent closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the parent
    end_with_parent()
    try:
        with open_copy() as model, ModelHost(model) as host:
            parent.send(host.handle())
            while True:
                function, arguments = parent.recv()
                try:
                    said = function(model, *arguments)
                except Exception as error:
                    said = portable(error, ModelUnavailable)
                parent.send(said)
    except (EOFError, BrokenPipeError):
        pass
    except Exception as error:
        parent.send(portable(error, ModelUnavailable))
