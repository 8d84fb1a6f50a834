"""What the tests of other servers import from their own code, with our server behind it; a plugin of pytest.

It is loaded by itself, in a process whose `tests` package is the other project's. Names that are not here stand for
code of that project: a test that calls one is skipped, and says so.
"""

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import socket
import subprocess
import sys
import time
import types
import unittest
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

URL = os.environ.get("PEERS_URL")  # of a server that runs already
MODEL = os.environ.get("PEERS_MODEL", "")
RESULT = os.environ.get("PEERS_RESULT")
START_SECONDS = 600
OWN_CODE = "needs the code of the other server"

running = False  # a test, and not the import of its module
loop = asyncio.new_event_loop()
servers: dict[int, subprocess.Popen[bytes]] = {}
outcomes: dict[str, dict[str, str]] = {}


# ---- our server under their names ----


def start_server(name: str, port: int, api_key: str | None, context: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "holotron.cli.main", "serve", MODEL, "--served-name", name, "--port", str(port)]
    words += ["--max-context", str(context), "--memory", "0.3", "--host-memory", "0.3"]
    words += ["--api-key", api_key] if api_key else []
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    servers[process.pid] = process
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"our server ended with code {process.returncode} as it started")
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200:
                return process
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"our server did not start within {START_SECONDS} seconds")


def stop_server(pid: int, *_: Any, **__: Any) -> None:
    if (process := servers.pop(pid, None)) is not None:
        process.terminate()
        process.wait(60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def option(words: Sequence[str], *names: str, default: int) -> int:
    """A number among the words that their server would be started with."""
    for name, value in pairwise(words):
        if name in names:
            return int(value)
    return default


class RemoteServer:
    """vLLM's tests start one for each module, and talk to it with OpenAI's clients."""

    DUMMY_API_KEY = "token-abc123"

    def __init__(self, model: str, words: Sequence[str] = (), *_: Any, **__: Any) -> None:
        self.url_root = URL or f"http://127.0.0.1:{free_port()}"
        self._pid: int | None = None
        if not URL:
            context = option(list(words), "--max-model-len", default=8192)
            self._pid = start_server(model, int(self.url_root.rsplit(":", 1)[1]), None, context).pid

    def __enter__(self) -> RemoteServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pid is not None:
            stop_server(self._pid)

    def url_for(self, *parts: str) -> str:
        return "/".join([self.url_root, *parts])

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"base_url": self.url_for("v1"), "api_key": self.DUMMY_API_KEY, "max_retries": 0} | options

    def get_client(self, **options: Any) -> Any:
        import openai

        return openai.OpenAI(**self._options(options))

    def get_async_client(self, **options: Any) -> Any:
        import openai

        return openai.AsyncOpenAI(**self._options(options))


def launch(model: str, base_url: str, timeout: float = 0, api_key: str | None = None, **options: Any) -> Any:
    """As SGLang's tests start a server."""
    if URL:
        return types.SimpleNamespace(pid=0)
    words = [str(word) for word in options.get("other_args") or ()]
    context = option(words, "--context-length", default=8192)
    return start_server(model, int(base_url.rsplit(":", 1)[1]), api_key, context)


class ModelTokenizer:
    """The served model's, whatever name it is asked for by."""

    def __init__(self, *_: Any, **__: Any) -> None:
        from holotron.model.text.tokenizer import load_tokenizer

        self._tokenizer = load_tokenizer(Path(MODEL))

    def encode(self, text: str, **_: Any) -> list[int]:
        return self._tokenizer.encode(text)

    def decode(self, ids: Any, **_: Any) -> str:
        return self._tokenizer.decode([ids] if isinstance(ids, int) else list(ids))


# ---- modules ----


class Absent:
    """A thing of theirs that is not here. It may be imported and named, but no test can use it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Absent:
        if running:
            pytest.skip(f"{OWN_CODE}: {self._name}")
        return self

    def __mro_entries__(self, _: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)

    def __or__(self, _: object) -> Absent:
        return self

    __ror__ = __or__
    __getitem__ = __call__


def async_fixture(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """pytest_asyncio's, on the one loop that there is."""
    if function is None:
        return lambda wrapped: async_fixture(wrapped, **options)
    options.pop("loop_scope", None)

    def run(*args: Any, **given: Any) -> Iterator[Any]:
        if inspect.isasyncgenfunction(function):
            values = function(*args, **given)
            yield loop.run_until_complete(anext(values))
            loop.run_until_complete(anext(values, None))
        else:
            yield loop.run_until_complete(function(*args, **given))

    run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    run.__name__ = function.__name__
    return pytest.fixture(**options)(run)


def sglang_name(name: str) -> Any:
    if name == "DEFAULT_URL_FOR_TEST":
        return URL or SGLANG_URL
    if name.startswith("DEFAULT_") and "TIMEOUT" in name:
        return START_SECONDS
    if name.startswith("DEFAULT_"):
        return "tiny" if URL else name.lower()
    return None


SGLANG_URL = f"http://127.0.0.1:{free_port()}"
TOKENIZERS = {"get_tokenizer": ModelTokenizer}
PROVIDED: dict[str, dict[str, Any]] = {
    "pytest_asyncio": {"fixture": async_fixture},
    "tests.utils": {"RemoteOpenAIServer": RemoteServer, "VLLM_PATH": Path()},
    "vllm.tokenizers": TOKENIZERS,
    "vllm.transformers_utils.tokenizer": TOKENIZERS,
    "sglang.srt.hf_transformers_utils": TOKENIZERS,
    "sglang.srt.utils.hf_transformers_utils": TOKENIZERS,
    "sglang.srt.utils": {"kill_process_tree": stop_server},
    "sglang.test.test_utils": {
        "CustomTestCase": unittest.TestCase,
        "popen_launch_server": launch,
        "is_in_ci": lambda: False,
    },
}


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Takes the place of their packages, which may lie in the checkout without being built."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name in PROVIDED or name.split(".")[0] in ("vllm", "sglang"):
            return importlib.util.spec_from_loader(name, self, is_package=True)
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        known = PROVIDED.get(module.__name__, {})
        vars(module).update(known)

        def missing(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            value = sglang_name(name) if module.__name__ == "sglang.test.test_utils" else None
            return value or Absent(f"{module.__name__}.{name}")

        vars(module)["__getattr__"] = missing


# ---- the plugin ----


def pytest_configure(config: pytest.Config) -> None:
    sys.meta_path.insert(0, StandInFinder())
    config.addinivalue_line("markers", "asyncio: runs on an event loop")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    global running
    running = True
    try:
        return (yield)
    finally:
        running = False


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    given = {name: value for name, value in pyfuncitem.funcargs.items() if name in wanted}
    loop.run_until_complete(pyfuncitem.obj(**given))
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        outcome = "error" if report.when != "call" and report.outcome == "failed" else report.outcome
        outcomes[report.nodeid] = {"outcome": outcome, "reason": last_line(report)}


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.outcome != "passed":
        outcomes[report.nodeid] = {"outcome": report.outcome, "reason": last_line(report)}


def last_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr or "")
    return next((line for line in text.splitlines()[:: 1 if crash else -1] if line.strip()), "")[:300]


def pytest_sessionfinish() -> None:
    for pid in list(servers):
        stop_server(pid)
    if RESULT:
        Path(RESULT).write_text(json.dumps(outcomes), encoding="utf-8")
