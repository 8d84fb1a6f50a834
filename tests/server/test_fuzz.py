"""Whatever is put wherever in a request, the answer says what is wrong with it, and the server goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .hostile import CHAT, HUGE, INFINITY, NAN, TEXT, never_broken, send, tool

pytestmark = pytest.mark.usefixtures("unharmed")


VALID = {
    CHAT: {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "done"},
        ],
        "max_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "seed": 1,
        "stop": ["x"],
        "stop_token_ids": [9],
        "logit_bias": {"65": 1.5},
        "n": 2,
        "logprobs": True,
        "top_logprobs": 2,
        "tools": [tool(description="d", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})],
        "tool_choice": "auto",
        "stream": False,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "integer"}}},
        "chat_template_kwargs": {"a": [1, {"b": "c"}]},
        "return_token_ids": True,
        "user": "me",
    },
    TEXT: {
        "prompt": [[65, 66], [67]],
        "max_tokens": 2,
        "logprobs": 1,
        "structured_outputs": {"regex": "[a-z]+"},
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "repetition_penalty": 1.1,
        "min_tokens": 0,
        "ignore_eos": True,
    },
    "/tokenize": {"messages": [{"role": "user", "content": "Hi"}], "tools": [tool()], "add_generation_prompt": True},
    "/detokenize": {"tokens": [65, 66], "skip_special_tokens": True},
    "/v1/sessions": {"ttl": 0.5, "on_update": "keep", "keep_images": None},
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {key: replaced(item, path[1:], new) if key == path[0] else item for key, item in value.items()}
    return [replaced(item, path[1:], new) if i == path[0] else item for i, item in enumerate(value)]


ODD = st.sampled_from(
    [
        HUGE,
        -HUGE,
        2**63,
        2**31,
        -1,
        0,
        1e308,
        5e-324,
        NAN,
        INFINITY,
        -INFINITY,
        "",
        "\x00",
        "\ud800",
        "\U0001f600",
        "a" * 20_000,
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("path", VALID)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_anywhere(http, path, data):
    body = VALID[path]
    place = data.draw(st.sampled_from(list(places(body))))
    answer = send(http, path, replaced(body, place, data.draw(VALUES)))
    never_broken(answer)
