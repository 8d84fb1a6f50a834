"""What clients meet at the edges: forms that are too hard, forms with tools, errors, limits, and a deep look."""

from __future__ import annotations

import base64
import io
import json
import threading
from typing import Any

import httpx
import pytest
from PIL import Image, PngImagePlugin

from .live import Live, serving

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
CLICK = {
    "type": "function",
    "function": {
        "name": "click",
        "parameters": {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"]},
    },
}
SCHEMA = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}


def says(**more: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 200,
        "temperature": 1,
        "parallel_tool_calls": False,
    } | more


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text[:500]
    return answer.json()["error"]


# ---- forms ----


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "click"}}])
def test_a_call_that_is_demanded_is_made_whatever_form_a_text_would_have(http, choice):
    answer = http.post(CHAT, json=says(tools=[CLICK], tool_choice=choice, response_format=FORM)).json()["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    assert json.loads(answer["message"]["tool_calls"][0]["function"]["arguments"])["x"] in (1, 2)


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_tools_and_a_form_leave_calls_and_that_form(http, choice):
    seen = set()
    for seed in range(12):
        body = says(tools=[CLICK], tool_choice=choice, response_format=FORM, seed=seed, temperature=2)
        message = http.post(CHAT, json=body).json()["choices"][0]["message"]
        if calls := message.get("tool_calls"):
            assert json.loads(calls[0]["function"]["arguments"])["x"] in (1, 2)
        else:
            assert json.loads(message["content"]) == {"n": 7}
        seen.add(bool(calls))
        if len(seen) == 2:
            break
    assert seen == ({False} if choice == "none" else {False, True})


def test_a_call_and_another_form_are_refused(http):
    body = says(tools=[CLICK], tool_choice="required", structured_outputs={"regex": "a"})
    assert "structured_outputs" in error(http.post(CHAT, json=body), 400)["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_that_turns_out_too_complex_is_the_clients(http, stream):
    """It compiles: only the second letter shows that there are too many ways on."""
    rules = [f"r{i}" for i in range(2100)]
    grammar = f'start: "x" ({" | ".join(rules)})\n' + "".join(f'{rule}: "y" "{rule}"\n' for rule in rules)
    answer = http.post(CHAT, json=says(structured_outputs={"grammar": grammar}, stream=stream))
    events = answer.text.split("\n\n")
    found = json.loads(events[-3].removeprefix("data: "))["error"] if stream else error(answer, 400)
    assert found["code"] == "invalid_grammar"
    assert found["param"] == "structured_outputs"


def test_a_shortest_length_and_a_form_exclude_each_other_in_the_clients_words(http):
    found = error(http.post(CHAT, json=says(min_tokens=3, response_format=FORM)), 400)
    assert found["param"] == "min_tokens"
    assert "grammar" not in found["message"]


# ---- errors ----


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages.0.content.0.text"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": 5}}]}]},
            "messages.0.content.0.image_url.url",
        ),
        (CHAT, {"messages": [5]}, "messages.0"),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        (CHAT, says(stop=[5]), "stop.0"),
        (CHAT, says(tools=[CLICK], tool_choice={"type": "function"}), "tool_choice.function"),
        (TEXT, {"prompt": [[65], ["a"]]}, "prompt.1.0"),
        (TEXT, {"prompt": [65, "a"]}, "prompt.1"),
        (TEXT, {"prompt": {"a": 1}}, "prompt"),
    ],
)
def test_errors_name_the_clients_own_field_and_no_type_of_ours(http, path, body, field):
    found = error(http.post(path, json=body), 400)
    assert found["param"] == field
    assert found["message"].startswith(f"{field}: ")
    for word in ("TextPart", "ChatMessage", "instance of", "tagged", "constrained", "list["):
        assert word not in found["message"]


# ---- images ----


def test_an_image_may_be_as_large_as_the_page_says(live, http):
    """20 MiB, of which most is not pixels; a byte more is refused."""
    most = live.state.settings.max_image_bytes
    assert most == 20 * 2**20

    def send(size: int) -> httpx.Response:
        buffer, chunk = io.BytesIO(), PngImagePlugin.PngInfo()
        Image.new("RGB", (32, 32)).save(buffer, "PNG")
        empty = len(buffer.getvalue())
        chunk.add(b"zzZz", bytes(size - empty - 12), after_idat=True)
        buffer = io.BytesIO()
        Image.new("RGB", (32, 32)).save(buffer, "PNG", pnginfo=chunk)
        assert len(buffer.getvalue()) == size
        url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}]
        return http.post(CHAT, json=says(messages=[{"role": "user", "content": content}], max_tokens=1))

    assert send(most).status_code == 200
    assert "20,971,520" in error(send(most + 1), 400)["message"]


# ---- a deep look ----


@pytest.fixture(scope="module")
def keyed(checkpoint):
    with serving(checkpoint, api_keys=("alpha",), admin_key="operator", max_queue=2) as live:
        yield live


def sessions(live: Live) -> int:
    with live.client("operator") as client:
        before = live.state.client.stats
        for _ in range(600):  # the figures come once a second
            if live.state.client.stats is not before:
                break
            threading.Event().wait(0.1)
        return int(client.get("/admin/status").json()["engine"]["sessions"])


def test_a_deep_look_leaves_nothing_behind(keyed):
    with keyed.client() as client:
        for _ in range(5):
            assert client.get("/health?deep=true").json()["seconds"] >= 0
    assert sessions(keyed) == 0
    assert keyed.state.admission.total == 0


def test_many_deep_looks_are_one(keyed):
    """Nobody needs a key for them: while one waits, others wait for the same."""
    answers: list[int] = []

    def look() -> None:
        with keyed.client() as client:
            answers.append(client.get("/health?deep=true").status_code)

    threads = [threading.Thread(target=look) for _ in range(8)]
    with keyed.paused():
        for thread in threads:
            thread.start()
        for _ in range(600):
            if keyed.state.admission.total:
                break
            threading.Event().wait(0.1)
        threading.Event().wait(0.3)
        assert keyed.state.admission.total == 1
    for thread in threads:
        thread.join(60)
    assert answers == [200] * 8
