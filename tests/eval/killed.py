"""Commands that are killed again and again while scripted servers answer them."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

CODE = "from holotron.cli.main import main; main()"


class Killer:
    """Counts what was asked, and kills the process that asks at some of these counts."""

    def __init__(self, moments: Sequence[int]) -> None:
        self.asked: Counter[Any] = Counter()
        self.left = list(moments)
        self.process: subprocess.Popen[bytes] | None = None
        self.kills = 0
        self._turn = threading.Lock()

    def count(self, question: Any) -> None:
        with self._turn:
            self.asked[question] += 1
            if self.left and self.asked.total() >= self.left[0] and self.process is not None:
                self.left.pop(0)
                self.kills += 1
                os.kill(self.process.pid, signal.SIGKILL)


def run_to_the_end(arguments: Sequence[str], killers: Sequence[Killer]) -> tuple[bytes, int]:
    """What `holotron …` prints when it is done, begun again after each kill; and how often it was begun."""
    runs = 0
    while True:
        runs += 1
        process = subprocess.Popen(
            [sys.executable, "-c", CODE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for killer in killers:
            killer.process = process
        output, problem = process.communicate(timeout=3600)
        print(f"run {runs}: exit {process.returncode}", file=sys.stderr, flush=True)
        if process.returncode == 0:
            return output, runs
        assert process.returncode == -signal.SIGKILL, problem.decode(errors="replace")[-2000:]


def circumstances(command: str) -> dict[str, str]:
    """What a report says of where it was made."""
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
    }
