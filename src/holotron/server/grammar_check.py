"""Grammars of clients are compiled in a process beside before the engine compiles them: that process can be ended.

Some grammars of a kilobyte are compiled for ever, in native code that nothing in its own process can stop. Started as
`python -m holotron.server.grammar_check`, it reads grammars from its input and writes what is wrong with each.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import resource
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import tokenizers

from holotron.engine.grammar import Grammar, GrammarCompiler, GrammarError
from holotron.model.text.tokenizer import Tokenizer
from holotron.server.body_reader import LENGTH, NICENESS

CHECK_SECONDS = 10.0
MOST_AT_ONCE = 4
KEPT_PASSED = 1024
MOST_BYTES = 8 * 2**30  # of addresses, of which its stack takes half a gigabyte


class GrammarCheck:
    """Lets grammars pass that were compiled in time. Whoever stops waiting ends the work."""

    def __init__(
        self, tokenizer: Tokenizer, vocab_size: int, eos_ids: Sequence[int], seconds: float = CHECK_SECONDS
    ) -> None:
        self._vocabulary = (tokenizer.to_json(), vocab_size, tuple(eos_ids))
        self._seconds = seconds
        self._passed: OrderedDict[Grammar, None] = OrderedDict()
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self._idle: Process | None = None
        self.processes: set[Process] = set()

    async def check(self, grammar: Grammar) -> None:
        """GrammarError where it cannot be compiled, or not in time."""
        if grammar not in self._passed:
            async with self._slots:
                problem = await self._ask(grammar)
            if problem:
                raise GrammarError(problem)
        self._passed[grammar] = None
        self._passed.move_to_end(grammar)
        if len(self._passed) > KEPT_PASSED:
            self._passed.popitem(last=False)

    async def close(self) -> None:
        for process in list(self.processes):
            await self._end(process)

    async def _ask(self, grammar: Grammar) -> str:
        process, self._idle = self._idle, None
        try:
            process = process or await self._start()
            async with asyncio.timeout(self._seconds):
                problem: str = await _exchange(process, grammar)
        except TimeoutError:
            problem = (
                f"compiling the {grammar.kind} grammar took more than {self._seconds:.0f} seconds; make it simpler"
            )
        except (OSError, EOFError):
            problem = f"the {grammar.kind} grammar is too complex: the process that compiled it ended"
        else:
            if self._idle is None:
                process, self._idle = None, process
            return problem
        finally:
            if process is not None:
                await self._end(process)
        return problem

    async def _start(self) -> Process:
        words = [sys.executable, "-m", "holotron.server.grammar_check"]
        process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE)
        self.processes.add(process)
        try:
            await _exchange(process, self._vocabulary)
        except BaseException:
            await self._end(process)
            raise
        return process

    async def _end(self, process: Process) -> None:
        self.processes.discard(process)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _exchange(process: Process, message: Any) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    _write(process.stdin, message)
    await process.stdin.drain()
    (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    return pickle.loads(await process.stdout.readexactly(length))


def _write(end: asyncio.StreamWriter | BinaryIO, message: Any) -> None:
    content = pickle.dumps(message)
    end.write(LENGTH.pack(len(content)) + content)


def main() -> None:
    for name in (signal.SIGINT, signal.SIGTERM):  # the engine's process decides when to end
        signal.signal(name, signal.SIG_IGN)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    compiler: GrammarCompiler | None = None
    answers = sys.stdout.buffer
    while header := sys.stdin.buffer.read(LENGTH.size):
        message = pickle.loads(sys.stdin.buffer.read(*LENGTH.unpack(header)))
        problem = ""
        if compiler is None:
            text, vocab_size, eos_ids = message
            compiler = GrammarCompiler(Tokenizer(tokenizers.Tokenizer.from_str(text)), vocab_size, eos_ids)
        else:
            # Should the engine's process be killed meanwhile, this one ends by itself.
            most = int(time.process_time() + 2 * CHECK_SECONDS)
            resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
            try:
                compiler.compile(message)
            except GrammarError as error:
                problem = str(error)
        _write(answers, problem)
        answers.flush()


if __name__ == "__main__":
    main()
