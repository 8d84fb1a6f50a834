"""Valid requests of every kind, and any value put anywhere in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from .hostile import CHAT, HUGE, INFINITY, NAN, TEXT, tool
from .test_openai_client import picture

PICTURE = picture()
VALID = {
    CHAT: {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Hi"},
                    {"type": "image_url", "image_url": {"url": PICTURE, "detail": "auto"}},
                ],
            },
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
    "/v1/responses": {
        "model": "tiny",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "done"},
            {"role": "user", "content": [{"type": "input_image", "image_url": PICTURE, "detail": "auto"}]},
        ],
        "max_output_tokens": 2,
        "temperature": 0.5,
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "integer"}}},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 1,
        "store": False,
        "stream": False,
        "metadata": {"a": "b"},
    },
    "/v1/messages": {
        "model": "tiny",
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "done"}]},
        ],
        "max_tokens": 2,
        "temperature": 0.5,
        "stop_sequences": ["x"],
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"},
        "stream": False,
    },
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "Hi"}], "system": "Be brief."},
    "/abort_request": {"rid": "none", "abort_all": False},
    "/generate": {
        "input_ids": [65, 66],
        "sampling_params": {"max_new_tokens": 2, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "stop": ["x"], "n": 1}
        | {"min_new_tokens": 0, "sampling_seed": 1, "skip_special_tokens": False, "no_stop_trim": True},
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": 1,
        "return_text_in_logprobs": True,
        "rid": "a",
        "stream": False,
    },
    "/inference/v1/generate": {
        "token_ids": [65, 66],
        "sampling_params": {"max_tokens": 2, "temperature": 0.5, "logprobs": 1, "detokenize": False, "seed": 1},
        "request_id": "a",
        "model": "tiny",
        "priority": 0,
    },
    "/generate/": {
        "prompts": ["Hi", "Ho"],
        "images": [None, None],
        "n": 2,
        "temperature": 0.5,
        "max_tokens": 2,
        "logprobs": 1,
        "structured_outputs_regex": None,
        "generation_kwargs": {"seed": 1, "stop": ["x"]},
    },
    "/chat/": {
        "messages": [[{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]],
        "n": 1,
        "max_tokens": 2,
        "logprobs": 0,
        "tools": [tool()],
        "chat_template_kwargs": {"a": 1},
        "generation_kwargs": {"top_k": 5},
    },
}
# SGLang's, vLLM's and TRL's.
OF_TRAINERS = ("/generate", "/inference/v1/generate", "/generate/", "/chat/")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The steps to every value in a value, and what is there."""
    yield path, value
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


def alike(value: Any) -> st.SearchStrategy[Any]:
    """Values of the same type, most of which may stand in its place."""
    match value:
        case bool():
            return st.booleans()
        case int():
            return st.integers(0, 8)
        case float():
            return st.floats(0, 1)
        case str():
            return st.text(max_size=8)
        case list():
            return st.lists(st.sampled_from(value), max_size=3) if value else st.just(value)
        case dict():
            return st.sets(st.sampled_from(sorted(value))).map(
                lambda left_out: {key: item for key, item in value.items() if key not in left_out}
            )
    return st.none()


def mutated(data: st.DataObject, body: dict[str, Any]) -> Any:
    """A body with another value somewhere; streamed as often as not, where that can be asked for."""
    if "stream" in body:
        body = body | {"stream": data.draw(st.booleans())}
    found = dict(places(body))
    place = data.draw(st.sampled_from(list(found)[::-1]))
    return replaced(body, place, data.draw(alike(found[place]) | VALUES))
