"""Real servers in processes of their own, which can be killed and started again at the same address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import httpx

PATIENCE = 60.0
# Reading the certificates of all authorities takes longer than the question.
PLAIN: dict[str, Any] = {"verify": False, "trust_env": False}


class Server:
    """`holotron serve` of a checkpoint for trainers on this machine, once it is asked for; a context manager."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Unless it runs."""
        if self._process is not None:
            return
        command = [sys.executable, "-c", "from holotron.cli.main import main; main()", "serve", str(self._checkpoint)]
        command += ["--port", str(self._port), "--trainer", "127.0.0.1", "--memory", "0.1", "--host-memory", "0.05"]
        command += ["--max-context", "1024", "--tokens-per-session", "256"]
        # Products in float32, as the trainer computes them.
        environment = os.environ | {"HOLOTRON_BF16": "0", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def kill(self) -> None:
        """Without warning, its engine with it."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE)
            self._process = None

    def signal(self, number: int) -> None:
        """To it and its engine."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def ready(self) -> Self:
        self.start()
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if httpx.get(f"{self.url}/health", **PLAIN).status_code == 200:
                    return self
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.05)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        response = httpx.request(method, f"{self.url}{path}", json=body, timeout=PATIENCE, **PLAIN)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def checksums(self) -> dict[str, str]:
        """SHA-256 of every parameter."""
        found: dict[str, str] = self.ask("POST", "/weight_checker", {"action": "checksum"})["checksums"]
        return found
