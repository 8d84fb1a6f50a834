"""Client libraries against a server: `make test-clients`, which has an environment of its own for them.

With RECORD_REQUESTS=FILE what they send is written down; the default tests send it again without the libraries.
"""

from __future__ import annotations

import base64
import io
import json
import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from holotron.server import bodies
from holotron.server.schemas import ChatRequest
from tests.server.live import Live, serving, write_checkpoint

FILES = {"langchain": "langchain_openai", "openai_agents": "agents"}  # where a library's module has another name
collect_ignore_glob = [] if find_spec("litellm") or find_spec("agents") else ["test_*.py"]
for path in Path(__file__).parent.glob("test_*.py"):
    library = path.stem.removeprefix("test_")
    if find_spec(FILES.get(library, library)) is None:
        collect_ignore_glob.append(path.name)
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "ANONYMIZED_TELEMETRY": "false", "LANGSMITH_TRACING": "false"}
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
RECORD = os.environ.get("RECORD_REQUESTS")
MOST_RECORDED = 8


LIBRARIES = ("openai", "litellm", "langchain-openai", "instructor", "anthropic", "browser-use", "trl")
LIBRARIES += ("smolagents", "openai-agents", "pydantic-ai-slim")
outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish() -> None:
    """With CLIENTS_RESULT=FILE: what was run with which versions, and what came of it."""
    if path := os.environ.get("CLIENTS_RESULT"):
        installed = {distribution.name for distribution in distributions()}
        told = {
            "date": datetime.now(UTC).date().isoformat(),
            "command": "make test-clients",
            "python": platform.python_version(),
            "libraries": {name: version(name) for name in LIBRARIES if name in installed},
            "tests": outcomes,
        }
        Path(path).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with serving(write_checkpoint(tmp_path_factory.mktemp("tiny")), engine={"max_context": 32768}) as server:
        yield server


@pytest.fixture(scope="session")
def picture() -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), "red").save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


@pytest.fixture(scope="session")
def recorded() -> Iterator[dict[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    yield found
    if RECORD:
        Path(RECORD).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


@pytest.fixture(autouse=True)
def recording(request: pytest.FixtureRequest, recorded: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note what each library sends; the server runs in this process."""
    library = request.module.__name__.rsplit("test_", 1)[1]
    read = bodies.read

    def noting(kind: Any, content: bytes) -> Any:
        if kind is ChatRequest and len(sent := recorded.setdefault(library, [])) < MOST_RECORDED:
            sent.append(json.loads(content))
        return read(kind, content)

    monkeypatch.setattr(bodies, "read", noting)
