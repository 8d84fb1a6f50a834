"""Running a pipeline: each step in a process of its own, its output in a log file, the state noted around it."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holotron.env.workers import stop_signals
from holotron.train.pipeline import LOGS, Pipeline, PipelineError, PipelineState, PipelineStep, StepFailed

TAIL_LINES = 20
TELL_SECONDS = 30.0
PR_SET_PDEATHSIG = 1
PROGRAM = (sys.executable, "-m", "holotron.cli.main")
Tell = Callable[[str], None]


def run_pipeline(pipeline: Pipeline, tell: Tell, *, first: str | None = None, only: str | None = None) -> int:
    """Run what is not done; how many steps that were. first: this step and all after it anew. only: this one anew."""
    chosen = _chosen(pipeline, first, only)
    state = PipelineState.read(pipeline)
    ran = 0
    with state.locked():
        state = PipelineState.read(pipeline)
        if first or only:
            state.again(chosen)
        for step in chosen:
            number = pipeline.steps.index(step) + 1
            status = state.status(step)
            if status.done:
                tell(f"[{number}/{len(pipeline.steps)}] {step.name}: done before, in {status.seconds:.0f} s")
                continue
            about = "" if status.seconds is None else f", about {status.seconds:.0f} s"
            tell(f"[{number}/{len(pipeline.steps)}] {step.name}: {status.why}{about}: {step.run}")
            seconds = _run_step(state, step, tell)
            ran += 1
            tell(f"[{number}/{len(pipeline.steps)}] {step.name}: done, in {seconds:.0f} s")
    return ran


def _chosen(pipeline: Pipeline, first: str | None, only: str | None) -> list[PipelineStep]:
    names = [step.name for step in pipeline.steps]
    for name in (first, only):
        if name is not None and name not in names:
            raise PipelineError(f"there is no step {name!r}; there are {', '.join(names)}")
    if first and only:
        raise PipelineError("say one of --from and --only")
    steps = list(pipeline.steps)
    if only:
        return [steps[names.index(only)]]
    return steps[names.index(first) :] if first else steps


def _run_step(state: PipelineState, step: PipelineStep, tell: Tell) -> float:
    state.begin(step)
    folder = state.pipeline.folder
    log = state.pipeline.home / LOGS / f"{step.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    arguments = step.arguments(folder)
    began, code = time.monotonic(), 1
    status = "interrupted"
    try:
        with open(log, "ab") as file:
            file.write(f"$ holotron {shlex.join(arguments)}\n".encode())
            file.flush()
            code = _run([*PROGRAM, *arguments], folder, file, lambda: tell(f"    {step.name}: {_tail(log, 1)}"))
        status = "done" if code == 0 else "interrupted" if code < 0 else "failed"
    finally:
        seconds = time.monotonic() - began
        state.end(step, status, seconds)
    if code:
        how = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
        raise StepFailed(f"the step {step.name} {how} after {seconds:.0f} s; its log is {log}", _tail(log, TAIL_LINES))
    return float(state.records[step.name]["seconds"])


def _run(command: list[str], folder: Path, log: Any, tell: Callable[[], None]) -> int:
    """The command's exit code. Its own session: signals reach it through this process, and it does not outlive it."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_end_with_parent,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    told, stopped = time.monotonic(), list[int]()

    def forward(number: int, frame: Any) -> None:
        """The step can keep its state after the first signal; a second one kills it."""
        stopped.append(number)
        process.send_signal(number if len(stopped) == 1 else signal.SIGKILL)

    with stop_signals(forward):
        while True:
            try:
                code = process.wait(timeout=1.0)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() - told > TELL_SECONDS:
                    told = time.monotonic()
                    tell()
    # What was asked to stop and did so politely has not ended well, also with exit code 0.
    return -stopped[0] if stopped else code


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _tail(path: Path, lines: int) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 8000))
        text = file.read().decode(errors="replace").replace("\r", "\n")
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
