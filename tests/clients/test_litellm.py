"""litellm: its messages carry fields of many providers, and come back with all of them."""

from __future__ import annotations

from typing import Any

import litellm
import pytest

from .toolbox import TOOLS, parts


@pytest.fixture
def ask(live) -> Any:
    def ask(messages: list[Any], **more: Any) -> Any:
        more = {"max_tokens": 200, "seed": 1} | more
        return litellm.completion(
            "openai/tiny", messages, api_base=f"{live.url}/v1", api_key="any", num_retries=0, **more
        )

    return ask


def test_messages_go_back_as_they_were_dumped(ask, picture):
    messages: list[Any] = [{"role": "user", "content": parts("What is this?", picture)}]
    for forced in ("required", "auto", "none"):
        answer = ask(messages, tools=TOOLS, tool_choice=forced)
        said = answer.choices[0].message
        messages.append(said.model_dump())
        for call in said.tool_calls or ():
            messages.append({"role": "tool", "tool_call_id": call.id, "name": "click", "content": "done"})
        messages.append({"role": "user", "content": "And now?"})
    assert messages[1]["tool_calls"]


def test_a_stream_put_together_goes_back(ask):
    messages: list[Any] = [{"role": "user", "content": "Hello"}]
    for forced in ("required", "none"):
        chunks = list(ask(messages, stream=True, tools=TOOLS, tool_choice=forced))
        whole = litellm.stream_chunk_builder(chunks, messages=messages)
        messages += [whole.choices[0].message.model_dump(), {"role": "user", "content": "More"}]
    assert messages[1]["tool_calls"][0]["function"]["name"] == "click"


def test_marks_of_another_provider_are_ignored(ask):
    marked = {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "system", "content": [marked]},
        {"role": "user", "content": [marked]},
        {"role": "assistant", "content": "Yes", "reasoning_content": "Hm", "thinking_blocks": [], "images": []},
        {"role": "user", "content": "Well?", "cache_control": {"type": "ephemeral"}},
    ]
    assert ask(messages, max_tokens=4).usage.completion_tokens
