"""anthropic: tools, a picture and a stream, with its own messages sent back."""

from __future__ import annotations

import anthropic
import pytest

TOOLS = [
    {
        "name": "click",
        "description": "Click at a point.",
        "input_schema": {
            "type": "object",
            "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}},
            "required": ["x"],
        },
    }
]


@pytest.fixture
def client(live):
    with anthropic.Anthropic(base_url=live.url, api_key="any", max_retries=0) as client:
        yield client


def test_tools_over_several_turns(client, picture):
    source = {"type": "base64", "media_type": "image/png", "data": picture.partition(",")[2]}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image", "source": source}]}
    ]
    for forced in ("any", "none"):
        answer = client.messages.create(
            model="tiny", max_tokens=200, messages=messages, tools=TOOLS, tool_choice={"type": forced}
        )
        calls = [block for block in answer.content if block.type == "tool_use"]
        replies = [{"type": "tool_result", "tool_use_id": call.id, "content": "done"} for call in calls]
        messages.append({"role": "assistant", "content": [block.model_dump() for block in answer.content]})
        messages.append({"role": "user", "content": [*replies, {"type": "text", "text": "And now?"}]})
        assert bool(calls) == (forced == "any")
    assert answer.usage.output_tokens


def test_streams_add_up(client):
    asked = {"model": "tiny", "max_tokens": 12, "messages": [{"role": "user", "content": "Hello"}]}
    asked["extra_body"] = {"temperature": 0}
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        whole = stream.get_final_message()
    assert whole.usage.output_tokens
    said = "".join(block.text for block in client.messages.create(**asked).content if block.type == "text")
    assert text == said
