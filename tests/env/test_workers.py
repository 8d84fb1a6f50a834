"""Workers end when the process that started them is gone, even if it was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = """
import multiprocessing, os, signal, sys, time
from pathlib import Path
from holotron.env.workers import end_with_parent

folder = Path(sys.argv[1])

def work(number):
    def finish(*_):
        (folder / f"finished-{number}").touch()
        sys.exit()
    if number:
        signal.signal(signal.SIGTERM, finish)
    (folder / f"pid-{number}").write_text(str(os.getpid()))
    time.sleep(60)

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2, end_with_parent) as pool:
        pool.map(work, [0, 1], chunksize=1)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_the_process_that_started_them(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT)
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)])
    files = [tmp_path / "pid-0", tmp_path / "pid-1"]
    try:
        wait_for(lambda: all(file.exists() and file.read_text() for file in files))
        pids = [int(file.read_text()) for file in files]
        assert all(map(alive, pids))
        parent.send_signal(number)
        parent.wait(60)
        wait_for(lambda: not any(map(alive, pids)))
    finally:
        parent.kill()
    assert (tmp_path / "finished-1").exists()  # one that handles the signal has had the time to


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.05)
