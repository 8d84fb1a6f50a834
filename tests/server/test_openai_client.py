"""The real `openai` client, pointed at this server and nothing else changed."""

from __future__ import annotations

import base64
import io
import json
import time

import openai
import pytest
from PIL import Image

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "click",
            "description": "Click at a point.",
            "parameters": {
                "type": "object",
                "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}, "label": {"enum": ["a", "b"]}},
                "required": ["x", "label"],
            },
        },
    }
]


@pytest.fixture(scope="module")
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def picture(color: str = "red", size: tuple[int, int] = (96, 64)) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def ask(client, content="Hello", **more):
    more = {"max_tokens": 12, "temperature": 0, "model": "tiny"} | more
    return client.chat.completions.create(messages=[{"role": "user", "content": content}], **more)


def test_models(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError, match="gpt-4"):
        client.models.retrieve("gpt-4")


def test_plain_chat(client):
    answer = ask(client)
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage.completion_tokens <= 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert ask(client).choices[0].message.content == answer.choices[0].message.content
    assert (
        ask(client, max_tokens=None, max_completion_tokens=3, extra_body={"ignore_eos": True}).usage.completion_tokens
        == 3
    )


def test_image_chat(client):
    def look(color):
        parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": picture(color)}}]
        return ask(client, parts, logprobs=True, extra_body={"return_token_ids": True, "ignore_eos": True})

    red, again, blue = look("red"), look("red"), look("blue")
    assert red.prompt_token_ids.count(5) == 6  # 96×64 is 6×4 patches of 16, four to a token
    assert red.choices[0].token_ids == again.choices[0].token_ids
    first = [entry.logprob for entry in red.choices[0].logprobs.content]
    assert first != [entry.logprob for entry in blue.choices[0].logprobs.content]


def test_streaming_says_the_same(client):
    whole = ask(client, extra_body={"ignore_eos": True})
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}, extra_body={"ignore_eos": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["length"]
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 12


def test_tools(client):
    answer = ask(client, tools=TOOLS, tool_choice="required", max_tokens=200, temperature=1, seed=3)
    call = answer.choices[0].message.tool_calls[0]
    arguments = json.loads(call.function.arguments)
    assert call.function.name == "click"
    assert 0 <= arguments["x"] <= 99
    assert arguments["label"] in ("a", "b")
    assert answer.choices[0].finish_reason == "tool_calls"
    named = {"type": "function", "function": {"name": "click"}}
    streamed = list(ask(client, tools=TOOLS, tool_choice=named, max_tokens=200, temperature=1, seed=3, stream=True))
    calls = [call for chunk in streamed for call in chunk.choices[0].delta.tool_calls or []]
    assert json.loads(calls[0].function.arguments) == arguments
    followed = client.chat.completions.create(
        model="tiny",
        max_tokens=5,
        tools=TOOLS,
        messages=[
            {"role": "user", "content": "Hello"},
            answer.choices[0].message,
            {"role": "tool", "tool_call_id": call.id, "content": "clicked"},
        ],
    )
    assert followed.usage.completion_tokens
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        ask(client, tool_choice="required")


def test_json_schema(client):
    schema = {
        "type": "object",
        "properties": {"note": {"type": "string", "maxLength": 10}, "n": {"type": "integer"}},
        "required": ["note", "n"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "step", "schema": schema}}
    answer = ask(client, response_format=wanted, max_tokens=300, temperature=1, seed=1)
    value = json.loads(answer.choices[0].message.content)
    assert value.keys() == {"note", "n"}
    assert len(value["note"]) <= 10
    text = ask(client, max_tokens=300, extra_body={"structured_outputs": {"choice": ["left", "right"]}})
    assert text.choices[0].message.content in ("left", "right")
    impossible = {"type": "integer", "minimum": 3, "maximum": 2}
    with pytest.raises(openai.BadRequestError, match="grammar"):
        ask(client, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": impossible}})


def test_logprobs(client):
    answer = ask(client, logprobs=True, top_logprobs=3, extra_body={"return_token_ids": True})
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens == len(answer.choices[0].token_ids)
    for entry in entries:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
        assert entry.logprob <= entry.top_logprobs[0].logprob + 1e-6  # the best may be markup, which is never said
    chunks = list(ask(client, logprobs=True, stream=True))
    streamed = [e.logprob for c in chunks if c.choices[0].logprobs for e in c.choices[0].logprobs.content]
    assert streamed == pytest.approx([entry.logprob for entry in entries])


def test_four_choices(client):
    answer = ask(client, n=4, temperature=1.5, seed=7, extra_body={"ignore_eos": True})
    texts = [choice.message.content for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len(set(texts)) == 4
    assert answer.usage.completion_tokens == 48
    same = ask(client, n=4, temperature=1.5, seed=7, extra_body={"ignore_eos": True})
    assert [choice.message.content for choice in same.choices] == texts


def test_stops(client):
    text = ask(client, max_tokens=40, extra_body={"ignore_eos": True}).choices[0].message.content
    stop = text[5:7]
    cut = ask(client, max_tokens=40, stop=[stop], extra_body={"ignore_eos": True}).choices[0]
    assert cut.message.content == text[: text.index(stop)]
    assert cut.finish_reason == "stop"


def test_aborting_frees_the_turn(client, live):
    stream = ask(client, stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
    for _, chunk in zip(range(5), stream, strict=False):
        assert chunk
    assert live.state.admission.total == 1
    began = time.monotonic()
    stream.close()
    while live.state.admission.total:
        assert time.monotonic() - began < 20
        time.sleep(0.01)
    while live.state.client.stats.values["running"]:
        assert time.monotonic() - began < 20  # the figures come once a second
        time.sleep(0.05)


def test_a_session_over_ten_turns(client):
    session = client.post("/sessions", cast_to=dict, body={})["id"]
    held = 0
    for turn in range(10):
        answer = ask(client, f"This is turn {turn}.", extra_body={"session_id": session})
        new = answer.usage.prompt_tokens - held
        assert answer.usage.prompt_tokens_details.cached_tokens == held
        assert 0 < new < 60
        held = answer.usage.total_tokens
        assert answer.session_id == session
    told = client.get(f"/sessions/{session}", cast_to=dict)
    assert told["tokens"] == held
    assert len(told["turns"]) == 10
    client.delete(f"/sessions/{session}", cast_to=dict)
    with pytest.raises(openai.NotFoundError, match="no session"):
        ask(client, extra_body={"session_id": session})


def test_the_whole_history_is_recognised_without_a_session(client):
    """What the last answer ended with is computed once more at most: text does not say how it was spelled in tokens."""
    messages = [{"role": "system", "content": "Recognise me."}]
    held = 0
    for turn in range(6):
        messages.append({"role": "user", "content": f"This is turn {turn}."})
        answer = client.chat.completions.create(
            model="tiny", messages=messages, max_tokens=8, temperature=0, extra_body={"return_token_ids": True}
        )
        cached = answer.usage.prompt_tokens_details.cached_tokens
        if turn:
            assert cached >= held
        held = answer.usage.prompt_tokens
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})


def test_completions_take_token_ids(client):
    text = client.completions.create(model="tiny", prompt="Hello", max_tokens=6, temperature=0, logprobs=2)
    ids = client.completions.create(
        model="tiny", prompt=list(b"Hello"), max_tokens=6, temperature=0, extra_body={"return_token_ids": True}
    )
    assert len(ids.choices[0].token_ids) <= 6
    assert len(text.choices[0].logprobs.tokens) == text.usage.completion_tokens
    assert len(text.choices[0].logprobs.top_logprobs[0]) == 2
    several = client.completions.create(model="tiny", prompt=["One", "Two"], max_tokens=4, n=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    chunks = list(client.completions.create(model="tiny", prompt="Hello", max_tokens=6, temperature=0, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == text.choices[0].text
