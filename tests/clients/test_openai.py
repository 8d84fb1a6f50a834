"""openai: its own messages sent back, in a conversation with a picture, tools and a stream."""

from __future__ import annotations

import openai
import pytest

from .toolbox import TOOLS, parts


@pytest.fixture
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="any") as client:
        yield client


def test_messages_go_back_as_they_were_dumped(client, picture):
    messages = [{"role": "user", "content": parts("What is this?", picture)}]
    for forced in ("required", "auto", "none"):
        answer = client.chat.completions.create(
            model="tiny", messages=messages, tools=TOOLS, tool_choice=forced, max_tokens=200, seed=1
        )
        said = answer.choices[0].message
        messages.append(said.model_dump())
        for call in said.tool_calls or ():
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "done"})
        messages.append({"role": "user", "content": "And now?"})
    assert messages[1]["tool_calls"]
    assert answer.usage.completion_tokens


def test_streamed_with_every_option_null(client):
    nothing = dict.fromkeys(
        ("temperature", "top_p", "n", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "stop"), None
    )
    more = {"parallel_tool_calls": None, "reasoning_effort": None, "user": None, "seed": None}
    stream = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Hello", "name": None}],
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": None},
        extra_body=nothing | more,
    )
    assert list(stream)[-1].usage.completion_tokens


def test_an_unknown_field_is_told(client):
    raw = client.chat.completions.with_raw_response.create(
        model="tiny", messages=[{"role": "user", "content": "Hello"}], max_tokens=1, extra_body={"colour": "red"}
    )
    assert "colour" in raw.headers["warning"]
    with pytest.raises(openai.BadRequestError, match="use_beam_search"):
        client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "Hello"}], extra_body={"use_beam_search": True}
        )
