"""A suite played by the weights of now, every so many steps, while the run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holotron.episodes.files import write_whole

FOLDER, RESULTS = "eval", "evaluations.jsonl"
PROGRAM = (sys.executable, "-m", "holotron.cli.main", "eval")


@dataclass(frozen=True)
class EvalConfig:
    """`suite` is played every `every` steps and at the end. `options` are those of `holotron eval SUITE`, as words."""

    suite: str = ""
    every: int = 0
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.suite) != bool(self.every) or self.every < 0:
            raise ValueError(f"suite is {self.suite!r} and every is {self.every}; eval needs both, every 1 or more")


class SuiteEvaluation:
    """One evaluation at a time, by `holotron eval` in a process of its own."""

    def __init__(self, out: Path, config: EvalConfig) -> None:
        self._out, self._config = out, config
        self._process: subprocess.Popen[bytes] | None = None
        self._step = 0

    @property
    def weights(self) -> Path:
        """Where the weights are expected that are to be played with."""
        return self._out / FOLDER / "weights"

    def due(self, step: int, ends: bool) -> bool:
        return bool(self._config.every) and (ends or step % self._config.every == 0)

    @property
    def running(self) -> bool:
        """Whether there is one whose result was not asked for since it ended."""
        return self._process is not None

    def begin(self, step: int) -> None:
        """Play with the weights that lie there. One that is under way must have been ended."""
        assert self._process is None
        folder = self._out / FOLDER / f"step-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        command = [*PROGRAM, self._config.suite, *self._config.options]
        command += ["--model", str(self.weights), "--out", str(folder), "--json"]
        # Not one of torchrun's ranks.
        plain = {key: value for key, value in os.environ.items() if key not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
        with (folder / "report.json").open("wb") as report, (folder / "log.txt").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=report, stderr=log, env=plain)
        self._step = step

    def result(self, wait: bool = False) -> dict[str, Any] | None:
        """What came of the one that has ended since the last time; None while there is nothing to tell."""
        if self._process is None or (not wait and self._process.poll() is None):
            return None
        code, self._process = self._process.wait(), None
        folder = self._out / FOLDER / f"step-{self._step}"
        found: dict[str, Any] = {"suite": self._config.suite, "step": self._step}
        if code:
            lines = (folder / "log.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            found["error"] = f"holotron eval ended with {code}: {lines[-1] if lines else 'it said nothing'}"
        else:
            report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
            found |= {key: report[key] for key in ("success_rate", "episodes")}
        path = self._out / RESULTS
        before = path.read_bytes() if path.exists() else b""
        write_whole(path, before + json.dumps(found).encode() + b"\n", sync=True)
        return found

    def stop(self) -> None:
        """End one that is under way; what it played is there, and is not played again."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None
