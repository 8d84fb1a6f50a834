"""What the published schema promises, tried with generated requests: `python -m tests.server.campaign --examples N`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.core.errors import InvalidSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from .live import Live, serving, write_checkpoint

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MODES = {"valid": schemathesis.GenerationMode.POSITIVE, "invalid": schemathesis.GenerationMode.NEGATIVE}
ADMIN_KEY = "operator"
# Would leave the server unable to answer, or take any path of this machine for weights.
LEFT_OUT = {"/admin/pause", "/admin/sleep", "/admin/update_weights", "/admin/weights", "/admin/adapters/{name}"}
SLOWEST = 10.0
# Fields whose values nearly always name something that is not there.
UNLIKELY = {"model", "session_id", "structured_outputs", "response_format", "tools", "tool_choice"}
UNLIKELY |= {"stop_token_ids", "logit_bias", "min_tokens", "top_logprobs"}


@dataclass
class Report:
    """What was sent and what came of it."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)
    slowest: float = 0.0

    def __str__(self) -> str:
        lines = [f"{sum(self.statuses.values())} requests, the slowest took {self.slowest:.2f} s"]
        lines += [f"  {count:6} × {status} {operation}" for (operation, status), count in sorted(self.statuses.items())]
        return "\n".join([*lines, *self.problems.values()])


def openings(live: Live) -> Iterator[Any]:
    """Every operation of the published schema that may be called at will."""
    schema = schemathesis.openapi.from_url(f"{live.url}/openapi.json")
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path not in LEFT_OUT:
            yield operation


def run(live: Live, examples: int, number: int = 0) -> Report:
    """So many requests of each kind to each operation; what breaks a promise is told, once for each operation."""
    load_all_checks()
    report = Report()
    with live.client(ADMIN_KEY) as client:
        session = client.post("/v1/sessions", json={"ttl": 3600}).json()["id"]
    for operation in openings(live):
        for kind, mode in MODES.items():
            try:
                _try(live, operation, mode, examples, number, session, report)
            except (Unsatisfiable, InvalidSchema):
                assert kind == "invalid", operation.label  # there is no way, or none that is found, to get it wrong
            except Exception as error:
                for problem in error.exceptions if isinstance(error, BaseExceptionGroup) else [error]:
                    about = "".join(traceback.format_exception(problem))[-2000:]
                    report.problems[f"{operation.label} {about[:60]}"] = f"{operation.label}, {kind} data: {about}"
    return report


def _try(live: Live, operation: Any, mode: Any, examples: int, number: int, session: str, report: Report) -> None:
    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), tame=st.booleans())
    def every(case: Any, tame: bool) -> None:
        _prepare(case, session, tame)
        began = time.monotonic()
        response = case.call(headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=60)
        seconds = time.monotonic() - began
        report.slowest = max(report.slowest, seconds)
        report.statuses[operation.label, response.status_code] += 1
        assert seconds < SLOWEST, f"took {seconds:.1f} s"
        if response.headers["content-type"][0].startswith("text/event-stream"):
            ends = ("data: [DONE]\n\n", '"type":"message_stop"}\n\n')  # others' streams end with an event of their own
            is_ended = response.text.endswith(ends) or "\nevent: response." in response.text[-100_000:]
            assert is_ended, response.text[-500:]
            return
        case.validate_response(response, checks=CHECKS)
        if response.status_code >= 400:
            assert set(response.json()) - {"type"} == {"error"}
            assert set(response.json()["error"]) == {"message", "type", "param", "code"}

    every()


def _prepare(case: Any, session: str, tame: bool) -> None:
    """Never an answer of a million tokens; and tamed, what the schema cannot know, so that some requests go through."""
    body = case.body
    if tame and "session_id" in (case.path_parameters or {}) and case.method != "DELETE":
        case.path_parameters["session_id"] = session
    if tame and isinstance(body, dict):
        for name in UNLIKELY & body.keys():
            del body[name]
    if isinstance(body, dict) and ("messages" in body or "prompt" in body):
        for name in ("max_tokens", "max_completion_tokens"):
            if body.get(name) is None or (isinstance(body[name], int) and body[name] > 8):
                body[name] = 8
        if "prompt" in body:
            del body["max_completion_tokens"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="requests of each kind to each operation")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = write_checkpoint(Path(folder))
        with serving(checkpoint, admin_key=ADMIN_KEY, max_sessions_per_key=200) as live:
            report = run(live, arguments.examples, arguments.seed)
    print(report)
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    main()
