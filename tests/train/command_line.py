"""The real command line in processes of its own, as a user would type it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAM = (sys.executable, "-m", "holotron.cli.main")
# More threads than free cores wait for each other: a step of a tiny model then takes seconds.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def holotron(folder: Path, *words: str, seconds: float = 1800) -> str:
    """What a command prints; its errors where it fails."""
    done = subprocess.run(
        [*PROGRAM, *words], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


def begin(folder: Path, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A command that goes on; what it says goes to a file."""
    with log.open("wb") as file:
        return subprocess.Popen([*PROGRAM, *words], cwd=folder, env=ENVIRONMENT, stdout=file, stderr=file)
