"""What is published at /openapi.json is what is done: no other status, no other form, and never a 5xx."""

from __future__ import annotations

from types import ModuleType

import pytest

from .live import serving


@pytest.fixture(scope="module")
def campaign() -> ModuleType:
    """Imported here: it takes seconds, and only one of the processes that run tests needs it."""
    from . import campaign

    return campaign


@pytest.fixture(scope="module")
def open_server(checkpoint, campaign):
    with serving(checkpoint, admin_key=campaign.ADMIN_KEY, max_sessions_per_key=50, transfer_seconds=0.2) as live:
        yield live


def test_generated_requests_find_nothing(open_server, campaign):
    report = campaign.run(open_server, examples=2)
    assert not report.problems, str(report)
    assert report.total > 60
    answered = {operation for operation, status in report.statuses if status == 200}
    assert {"POST /v1/sessions", "GET /v1/models", "POST /detokenize"} <= answered  # drawn chats seldom are valid
    assert open_server.state.admission.total == 0


def test_generated_requests_of_trainers_find_nothing(open_server, campaign):
    report = campaign.run(open_server, examples=1, operations=list(campaign.openings_for_trainers()))
    assert not report.problems, str(report)
    assert {operation.split()[1] for operation, _ in report.statuses} == {route.path for route in campaign.TRAINERS}
    assert open_server.state.client.restarts == 0


def test_every_operation_is_described(open_server, campaign):
    operations = list(campaign.openings(open_server))
    assert len(operations) > 15
    with open_server.client() as client:
        schema = client.get("/openapi.json").json()
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            assert "200" in operation["responses"], f"{method} {path}"
            assert "422" not in operation["responses"], f"{method} {path} says 422, which is never sent"
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorAnswer")


def test_other_paths_and_methods_answer_in_the_same_form(open_server):
    with open_server.client() as client:
        for method, path, status in (("GET", "/nothing", 404), ("GET", "/tokenize", 405), ("POST", "/health", 405)):
            answer = client.request(method, path)
            assert answer.status_code == status
            assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
