"""What client libraries send is understood: their own messages, null for whatever is optional, fields of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from holotron.server.body_reader import read
from holotron.server.errors import ApiError
from holotron.server.schemas import ChatRequest, CompletionRequest, Sampling
from holotron.server.unknown_fields import CHANGES_ANSWER, ignore_unknown

from .hostile import CHAT, HELLO, TEXT, refused, tool
from .test_openai_client import picture

# Written by RECORD_REQUESTS=tests/server/client_requests.json make test-clients
RECORDED = json.loads(Path(__file__).with_name("client_requests.json").read_text(encoding="utf-8"))
CALL = {"id": "call_1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}
DUMPED = {
    "role": "assistant",
    "content": None,
    "refusal": None,
    "annotations": [],
    "audio": None,
    "function_call": None,
    "tool_calls": [CALL],
    "reasoning": "It is a button.",
    "reasoning_details": [{"type": "text"}],
    "provider_specific_fields": {"refusal": None},
    "thinking_blocks": [],
    "cache_control": {"type": "ephemeral"},
}
CONVERSATION = [
    {"role": "user", "content": [{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}]},
    DUMPED,
    {"role": "tool", "tool_call_id": "call_1", "name": None, "content": "done"},
]


def parsed(kind: Any, body: Any) -> Any:
    value, problems = read(kind, json.dumps(body).encode())
    assert problems == []
    return value


@pytest.mark.parametrize("library", RECORDED)
def test_what_a_library_sends_is_understood(http, library):
    bodies = RECORDED[library]
    for body in bodies:
        assert parsed(ChatRequest, body).messages
    longest = max(bodies, key=lambda body: len(body["messages"]))
    assert len(longest["messages"]) > 2, "several turns"
    answer = http.post(CHAT, json=longest | {"max_tokens": 1, "max_completion_tokens": 1})
    assert answer.status_code == 200, answer.text[:500]


def test_a_dumped_message_goes_back(http):
    answer = http.post(CHAT, json={"messages": CONVERSATION, "tools": [tool()], "max_tokens": 1})
    assert answer.status_code == 200, answer.text[:500]
    assert "warning" not in answer.headers  # fields of messages are not worth one
    assert http.post("/tokenize", json={"messages": CONVERSATION}).status_code == 200


@pytest.mark.parametrize("kind", [ChatRequest, CompletionRequest])
def test_null_is_the_default(kind):
    needed = {"messages": HELLO["messages"]} if kind is ChatRequest else {"prompt": "Hello"}
    default = parsed(kind, needed)
    assert parsed(kind, needed | dict.fromkeys(kind.model_fields.keys() - needed.keys())) == default
    assert len(Sampling.model_fields) > 20


def test_null_within_is_the_default_too(http):
    image = {"type": "image_url", "image_url": {"url": "data:,", "detail": None}}
    message = {"role": "user", "content": [{"type": "text", "text": "a"}, image], "tool_calls": None}
    options = {"stream_options": {"include_usage": None}, "response_format": {"type": "text", "json_schema": None}}
    schema = {"properties": {"x": {"default": None}}}
    tools = [{"type": "function", "function": {"name": "f", "strict": None, "parameters": schema}}]
    value = parsed(ChatRequest, {"messages": [message], "tools": tools, **options})
    assert value.messages[0].content[1].image_url.detail == "auto"
    assert value.stream_options.include_usage is False
    assert value.tools[0].function.parameters == schema  # the client's own JSON stays as it is
    nothing = dict.fromkeys(("temperature", "top_p", "n", "stream", "logprobs", "parallel_tool_calls", "stop"))
    assert http.post(CHAT, json=HELLO | nothing).status_code == 200


def test_a_refusal_goes_back(http):
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    answer = http.post(CHAT, json=HELLO | {"messages": [*HELLO["messages"], refusal, *HELLO["messages"]]})
    assert answer.status_code == 200, answer.text[:500]


def test_no_alternatives_need_no_log_probabilities(http):
    assert http.post(CHAT, json=HELLO | {"logprobs": False, "top_logprobs": 0}).status_code == 200


def test_data_urls_may_be_escaped_and_have_line_breaks(http):
    head, _, data = picture().partition(",")
    for written in (quote(data, safe=""), "\r\n".join(data[at : at + 76] for at in range(0, len(data), 76))):
        content = [{"type": "image_url", "image_url": {"url": f"{head},{written}"}}]
        answer = http.post(CHAT, json=HELLO | {"messages": [{"role": "user", "content": content}]})
        assert answer.status_code == 200, answer.text[:500]


def test_items_of_a_response_have_nulls_too(http):
    item = {"type": None, "role": "user", "content": "Hello", "id": None, "status": None}
    body = {"input": [item], "max_output_tokens": 1}
    assert http.post("/v1/responses", json=body).status_code == 200
    error = refused(http.post("/v1/responses", json=body | {"input": [{"type": "tune"}]}), "input.0")
    assert "references to items of stored responses" in error["message"]


def test_a_wrong_list_is_told_as_a_list(http):
    error = refused(http.post(CHAT, json=HELLO | {"stop": ["a"] * 99}), "stop")
    assert "at most" in error["message"]
    answer = http.post("/v1/messages", json=HELLO | {"stop_sequences": [""]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "stop_sequences.0"


def test_an_unknown_field_is_ignored_and_told(http):
    body = HELLO | {"colour": 1, 'quo"te\r\nX: y': 2, "stream_options": {"shape": 3}}
    answer = http.post(CHAT, json=body)
    assert answer.status_code == 200
    assert answer.headers["warning"] == '299 holotron "ignored unknown fields: colour, quoteX: y, stream_options.shape"'
    assert "warning" not in http.post(CHAT, json=HELLO).headers
    streamed = http.post(TEXT, json={"prompt": "a", "max_tokens": 1, "stream": True, "colour": 1})
    assert "colour" in streamed.headers["warning"]


def test_what_would_change_the_answer_stays_an_error(http):
    for name in ("use_beam_search", "guided_json", "functions", "skip_special_tokens"):
        error = refused(http.post(CHAT, json=HELLO | {name: {"a": 1}}), name)
        assert error["code"] == "unsupported_parameter"
    harmless = {name: value for name, value in CHANGES_ANSWER.items() if name not in ChatRequest.model_fields}
    assert http.post(CHAT, json=HELLO | harmless).status_code == 200
    refused(http.post(CHAT, json=HELLO | {"structured_outputs": {"regex": "a", "json_object": True}}), "json_object")


def test_strict_refuses_them():
    with pytest.raises(ApiError, match="colour"):
        ignore_unknown(parsed(ChatRequest, HELLO | {"colour": 1}), strict=True)
    assert ignore_unknown(parsed(ChatRequest, HELLO), strict=True) == ""


def test_a_body_that_is_not_said_to_be_json(http):
    for kind in ("application/x-www-form-urlencoded", "text/plain"):  # the first is what curl -d says
        answer = http.post(CHAT, content=json.dumps(HELLO).encode(), headers={"content-type": kind})
        assert "Content-Type: application/json" in refused(answer, "body")["message"]
