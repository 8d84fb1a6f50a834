"""Requests that nobody should send, and what an answer to them must be like."""

from __future__ import annotations

import json
from typing import Any

import httpx

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
PATIENCE = 30.0
HELLO = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
HUGE = 10**400
NAN, INFINITY = float("nan"), float("inf")


def send(http: httpx.Client, path: str, body: Any = None, **more: Any) -> httpx.Response:
    if body is not None:
        more |= {"content": json.dumps(body), "headers": {"content-type": "application/json"} | more.get("headers", {})}
    return http.post(path, timeout=PATIENCE, **more)


def refused(answer: httpx.Response, *names: str, status: int = 400) -> dict[str, Any]:
    """The error, which must have OpenAI's form and name the field."""
    assert answer.status_code == status, answer.text[:500]
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    for name in names or ("body",):
        assert name in error["message"]
        assert name in error["param"]
    assert len(answer.content) < 3000
    return error


def never_broken(answer: httpx.Response) -> None:
    """Either it was good enough, or the error names something."""
    assert answer.status_code < 500, answer.text[:500]
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert error["param"], error
        assert error["message"], error


def chat(**changes: Any) -> dict[str, Any]:
    return HELLO | changes


def says(content: Any) -> dict[str, Any]:
    return chat(messages=[{"role": "user", "content": content}])


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f"} | function}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value
