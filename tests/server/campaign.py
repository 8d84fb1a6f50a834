"""What the published schema promises, tried with generated requests: `make fuzz`.

A part of them is drawn by schemathesis from the schema, valid and invalid ones for every operation; the rest are
requests of every kind that can be answered, with any value put anywhere.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import schemathesis
from fastapi.openapi.utils import get_openapi
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

from holotron.bench.report import machine, write_json
from holotron.server import sglang_routes, trl_routes, vllm_routes

from .hostile import CHAT, never_broken, send
from .live import Live, serving, write_checkpoint
from .mutations import OF_TRAINERS, VALID, mutated

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MODES = {"valid": schemathesis.GenerationMode.POSITIVE, "invalid": schemathesis.GenerationMode.NEGATIVE}
ADMIN_KEY = "operator"
# What leaves the server unable to answer, and what ends that.
ENDED_BY = {"/admin/pause": "/admin/resume", "/admin/sleep": "/admin/wake"}
ENDED_BY |= {"/pause": "/resume", "/pause_generation": "/continue_generation", "/sleep": "/wake_up"}
ENDED_BY |= {"/release_memory_occupation": "/resume_memory_occupation"}
# Dialects of trainers: their schema is not published, and statuses and answers are those of others.
TRAINERS = [route for part in (sglang_routes, vllm_routes, trl_routes) for route in part.router.routes]
SLOWEST = 30.0
TURNS = "/v1/sessions/{session_id}/turns"
# Fields whose values nearly always name something that is not there.
UNLIKELY = {"model", "session_id", "structured_outputs", "response_format", "tools", "tool_choice"}
UNLIKELY |= {"stop_token_ids", "logit_bias", "min_tokens", "top_logprobs"}


@dataclass
class Report:
    """What was sent and what came of it."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)
    slowest: float = 0.0

    def note(self, operation: str, status: int, seconds: float) -> None:
        self.slowest = max(self.slowest, seconds)
        self.statuses[operation, status] += 1
        assert seconds < SLOWEST, f"took {seconds:.1f} s"

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Let a broken promise be told and not raised."""
        try:
            yield
        except Exception as error:
            for problem in error.exceptions if isinstance(error, BaseExceptionGroup) else [error]:
                about = "".join(traceback.format_exception(problem))[-2000:]
                self.problems[f"{what} {about[:60]}"] = f"{what}: {about}"

    @property
    def total(self) -> int:
        return sum(self.statuses.values())

    def add(self, other: Report) -> None:
        self.statuses += other.statuses
        self.problems |= other.problems
        self.slowest = max(self.slowest, other.slowest)

    def told(self) -> dict[str, Any]:
        by_operation: dict[str, dict[str, int]] = {}
        classes = Counter[str]()
        for (operation, status), count in sorted(self.statuses.items()):
            by_operation.setdefault(operation, {})[str(status)] = count
            classes[f"{status // 100}xx"] += count
        return {
            "requests": self.total,
            "statuses_by_class": dict(classes),
            "statuses_by_operation": by_operation,
            "slowest_seconds": round(self.slowest, 2),
            "problems": list(self.problems.values()),
        }

    def __str__(self) -> str:
        lines = [f"{self.total} requests, the slowest took {self.slowest:.2f} s"]
        lines += [f"  {count:6} × {status} {operation}" for (operation, status), count in sorted(self.statuses.items())]
        return "\n".join([*lines, *self.problems.values()])


def openings(live: Live) -> Iterator[Any]:
    """Every operation of the published schema."""
    schema = schemathesis.openapi.from_url(f"{live.url}/openapi.json")
    for result in schema.get_all_operations():
        yield result.ok()


def openings_for_trainers() -> Iterator[Any]:
    """Every operation of the dialects of trainers."""
    with warnings.catch_warnings():  # one function answers GET and POST
        warnings.filterwarnings("ignore", "Duplicate Operation ID")
        schema = schemathesis.openapi.from_dict(get_openapi(title="Trainers", version="1", routes=TRAINERS))
    for result in schema.get_all_operations():
        yield result.ok()


def run(live: Live, examples: int, number: int = 0, operations: Sequence[Any] | None = None) -> Report:
    """So many requests of each kind to each operation; what breaks a promise is told, once for each operation."""
    load_all_checks()
    report = Report()
    with live.client(ADMIN_KEY) as client:
        session = _only_session(client)
        for operation in openings(live) if operations is None else operations:
            for kind, mode in MODES.items():
                with report.noting(f"{operation.label}, {kind} data"):
                    try:
                        _try(client, operation, mode, examples, number, session, report)
                    except (Unsatisfiable, InvalidSchema):
                        # there is no way, or none that is found, to get it wrong
                        assert kind == "invalid", operation.label
    return report


def _only_session(client: httpx.Client) -> str:
    """A session, and room for others: those that were opened before are closed."""
    for known in client.get("/v1/sessions").json()["data"]:
        client.delete(f"/v1/sessions/{known['id']}")
    return str(client.post("/v1/sessions", json={"ttl": 3600}).raise_for_status().json()["id"])


def _drawn(examples: int, number: int) -> Callable[[Any], Any]:
    phases = [Phase.explicit, Phase.generate]
    checks = list(HealthCheck)
    drawn = settings(max_examples=examples, deadline=None, database=None, phases=phases, suppress_health_check=checks)
    return lambda test: seed(number)(drawn(test))


def _try(
    client: httpx.Client, operation: Any, mode: Any, examples: int, number: int, session: str, report: Report
) -> None:
    of_trainers = operation.path in {route.path for route in TRAINERS}

    @_drawn(examples, number)
    @given(case=operation.as_strategy(generation_mode=mode), tame=st.booleans())
    def every(case: Any, tame: bool) -> None:
        _prepare(case, session, tame)
        began = time.monotonic()
        response = case.call(
            base_url=str(client.base_url), headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=60
        )
        if (ending := ENDED_BY.get(operation.path)) is not None:
            client.post(ending).raise_for_status()
        report.note(operation.label, response.status_code, time.monotonic() - began)
        if response.headers["content-type"][0].startswith("text/event-stream"):
            _check_stream(response.text)
            return
        case.validate_response(response, checks=CHECKS[:1] if of_trainers else CHECKS)
        if response.status_code >= 400:
            assert of_trainers or set(response.json()) - {"type"} == {"error"}
            assert set(response.json()["error"]) == {"message", "type", "param", "code"}

    every()


def mutate(live: Live, examples: int, number: int, paths: Sequence[str]) -> Report:
    """So many requests to each of the paths, whose valid bodies are known, each with some value in a wrong place."""
    report = Report()
    with live.client(ADMIN_KEY) as client:
        session = _only_session(client)
        for path in paths:
            with report.noting(f"POST {path}, changed"):
                _mutate(client, path, examples, number, session, report)
    return report


def _mutate(client: httpx.Client, path: str, examples: int, number: int, session: str, report: Report) -> None:
    valid = VALID[CHAT] | {"n": 1} if path == TURNS else VALID[path]  # a session has one future

    @_drawn(examples, number)
    @given(data=st.data())
    def every(data: st.DataObject) -> None:
        body = mutated(data, valid)
        began = time.monotonic()
        answer = send(client, path.replace("{session_id}", session), body)
        report.note(f"POST {path}", answer.status_code, time.monotonic() - began)
        if answer.headers["content-type"].startswith("text/event-stream"):
            _check_stream(answer.text)
        else:
            never_broken(answer)
        if path == TURNS and answer.status_code == 200:
            client.post(f"/v1/sessions/{session}/rollback", json={"turn": 0}).raise_for_status()

    every()


def _check_stream(text: str) -> None:
    ends = ("data: [DONE]\n\n", '"type":"message_stop"}\n\n')  # others' streams end with an event of their own
    assert text.endswith(ends) or "\nevent: response." in text[-100_000:], text[-500:]


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
    parser.add_argument("--requests", type=int, default=20_000, help="as many at least, over all operations")
    parser.add_argument("--trainers", action="store_true", help="to the dialects of trainers alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    report, began = Report(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = write_checkpoint(Path(folder))
        # Groups that nobody comes to are not waited for.
        limits = {"max_sessions_per_key": 200, "kept_most": 50, "transfer_seconds": 1.0}
        with serving(checkpoint, {"max_context": 512}, admin_key=ADMIN_KEY, **limits) as live:
            operations = [*([] if arguments.trainers else openings(live)), *openings_for_trainers()]
            paths = OF_TRAINERS if arguments.trainers else [*VALID, TURNS]
            number = arguments.seed
            while report.total < arguments.requests and not report.problems:
                report.add(run(live, 10, number, operations))
                report.add(mutate(live, 200, number, paths))
                number += 1
                print(f"{time.monotonic() - began:.0f} s: {report.total} requests", file=sys.stderr, flush=True)
            restarts = live.state.client.restarts
    print(report)
    facts = machine() | {
        "command": f"python -m tests.server.campaign --requests {arguments.requests}"
        + " --trainers" * arguments.trainers,
        "cores": os.cpu_count(),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "seconds": round(time.monotonic() - began),
        "engine_restarts": restarts,
    }
    if arguments.out:
        write_json(arguments.out, facts | report.told())
    sys.exit(1 if report.problems or restarts else 0)


if __name__ == "__main__":
    main()
