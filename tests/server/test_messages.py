"""/v1/messages with the real `anthropic` client."""

from __future__ import annotations

import base64
import json

import pytest

from .live import serving
from .test_openai_client import picture

CLICK = {
    "name": "click",
    "description": "Click.",
    "input_schema": {
        "type": "object",
        "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["x"],
    },
}


@pytest.fixture(scope="module")
def client(live):
    import anthropic  # not above: it takes seconds, which every process of the tests would need

    with anthropic.Anthropic(base_url=live.url, api_key="any", max_retries=0) as client:
        yield client


def ask(client, content="Hello", **more):
    body = {"temperature": 0, "ignore_eos": True} | more.pop("extra_body", {})  # newer clients know no temperature
    more = {"model": "tiny", "max_tokens": 8, "extra_body": body} | more
    messages = content if isinstance(content, list) and "role" in content[0] else [{"role": "user", "content": content}]
    return client.messages.create(messages=messages, **more)


def image(color: str = "red") -> dict[str, object]:
    data = picture(color).partition(",")[2]
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def test_an_answer_is_that_of_a_chat(client, http):
    message = ask(client, system="Be brief.")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    body = {"messages": messages, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    chat = http.post("/v1/chat/completions", json=body).json()
    assert message.content[0].text == chat["choices"][0]["message"]["content"]
    assert message.stop_reason == "max_tokens"
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens == chat["usage"]["prompt_tokens"]
    assert message.usage.output_tokens == 8
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert ask(client, [{"type": "text", "text": "Hello"}], system=blocks).content == message.content


def test_a_stream_says_the_same(client):
    whole = ask(client)
    with client.messages.stream(
        model="tiny",
        max_tokens=8,
        messages=[{"role": "user", "content": "Hello"}],
        extra_body={"temperature": 0, "ignore_eos": True},
    ) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text
    assert final.stop_reason == "max_tokens"
    assert final.usage.output_tokens == 8
    raw = [kind for kind in events if kind.startswith(("message", "content_block"))]
    assert raw[:2] == ["message_start", "content_block_start"]
    assert raw[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_stop_sequences(client):
    text = ask(client, max_tokens=40).content[0].text
    stop = text[5:7]
    cut = ask(client, max_tokens=40, stop_sequences=[stop])
    assert cut.stop_reason == "stop_sequence"
    assert cut.stop_sequence == stop
    assert cut.content[0].text == text[: text.index(stop)]


@pytest.mark.parametrize("stream", [False, True])
def test_tools(client, stream):
    choice = {"type": "any", "disable_parallel_tool_use": True}
    more = {"tools": [CLICK], "tool_choice": choice, "max_tokens": 200, "extra_body": {"seed": 3, "temperature": 1}}
    if stream:
        asked = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}
        with client.messages.stream(**asked, **more) as events:
            message = events.get_final_message()
    else:
        message = ask(client, **more)
    (use,) = message.content
    assert message.stop_reason == "tool_use"
    assert use.type == "tool_use"
    assert 0 <= use.input["x"] <= 99
    history = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": message.content},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "seen"}]},
                {"type": "text", "text": "Go on."},
                image(),
            ],
        },
    ]
    assert ask(client, history, tools=[CLICK]).content
    named = ask(
        client, **(more | {"tool_choice": {"type": "tool", "name": "click", "disable_parallel_tool_use": True}})
    )
    assert named.content[0].name == "click"


def test_images_and_counting(client):
    parts = [{"type": "text", "text": "What?"}, image()]
    counted = client.messages.count_tokens(model="tiny", messages=[{"role": "user", "content": parts}], tools=[CLICK])
    usage = ask(client, parts, tools=[CLICK]).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    plain = client.messages.count_tokens(model="tiny", messages=[{"role": "user", "content": parts[:1]}], tools=[CLICK])
    assert counted.input_tokens == plain.input_tokens + 6 + 2  # with the image's start and end


def said(client, http, *content: dict[str, object]) -> tuple[str, int]:
    """What the model reads of a message, and how many tokens of a prompt that is."""
    counted = client.messages.count_tokens(model="tiny", messages=[{"role": "user", "content": list(content)}])
    message = ask(client, list(content), max_tokens=1, extra_body={"return_token_ids": True, "temperature": 0})
    usage = message.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    return http.post("/detokenize", json={"tokens": message.prompt_token_ids}).json()["prompt"], counted.input_tokens


def test_documents_are_read(client, http):
    text = {"type": "text", "media_type": "text/plain", "data": "The sky is green."}
    based = {"type": "base64", "media_type": "text/plain", "data": base64.b64encode(b"The sky is green.").decode()}
    inner = {"type": "content", "content": [{"type": "text", "text": "The sky is green.", "citations": None}, image()]}
    for source in (text, based, {"type": "content", "content": "The sky is green."}):
        block = {"type": "document", "source": source, "title": "Skies", "context": "Of 1900", "citations": None}
        read, _ = said(client, http, block, {"type": "text", "text": "Why?"})
        assert "Skies\nOf 1900\n\nThe sky is green.Why?" in read
    _, without = said(client, http, inner["content"][0])
    read, count = said(client, http, {"type": "document", "source": inner})
    assert count == without + 6 + 2  # with the image's start and end
    found = {
        "type": "search_result",
        "source": "a.org",
        "title": "Skies",
        "content": [{"type": "text", "text": "Red."}],
    }
    history = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "click", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [found, block]}]},
    ]
    given = {"model": "tiny", "messages": history, "tools": [CLICK]}
    counted = client.messages.count_tokens(**given).input_tokens
    usage = client.messages.create(max_tokens=1, **given).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens
    history[1]["content"][0]["content"] = "Skies\na.org\n\nRed.Skies\nOf 1900\n\nThe sky is green."
    assert client.messages.count_tokens(**given).input_tokens == counted


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}, "PDFs and files are not read here"),
        ({"type": "url", "url": "https://a.example/a.pdf"}, "as image blocks"),
        ({"type": "file", "file_id": "file_1"}, "send their text"),
        ({"type": "text", "media_type": "text/plain"}, "data must be given"),
        ({"type": "base64", "media_type": "text/plain", "data": "?"}, "not a text in base64"),
        ({"type": "content"}, "content must be given"),
    ],
)
def test_what_is_no_text_of_a_document_is_told(http, source, reason):
    block = {"type": "document", "source": source}
    for content in ([block], [{"type": "tool_result", "tool_use_id": "t", "content": [block]}]):
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            answer = http.post(path, json=body)
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert error["param"].endswith("content.0.source")
            assert reason in error["message"]


def test_thoughts_are_a_block(client):
    body = {"structured_outputs": {"regex": "yes"}, "seed": 1, "temperature": 1}
    more = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 400}
    message = ask(client, extra_body=body, **more)
    assert message.content[0].type == "thinking"
    if message.stop_reason == "end_turn":
        assert message.content[1].text == "yes"
    history = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": message.content}]
    assert ask(client, [*history, {"role": "user", "content": "So?"}]).content


def test_a_session(client, http):
    session = http.post("/v1/sessions").json()["id"]
    first = ask(client, "One", extra_body={"session_id": session})
    second = ask(client, "Two", extra_body={"session_id": session})
    held = first.usage.input_tokens + first.usage.output_tokens
    assert second.usage.cache_read_input_tokens == held


def test_errors(client, live, http):
    import anthropic

    source = {"type": "base64", "media_type": "image/png", "data": "no"}
    with pytest.raises(anthropic.BadRequestError, match=r"messages\.0\.content\.1\.source"):
        ask(client, [{"type": "text", "text": "a"}, {"type": "image", "source": source}])
    with pytest.raises(anthropic.NotFoundError, match="gpt"):
        ask(client, model="gpt")
    found = http.post("/v1/messages", json={"messages": [], "max_tokens": 1})
    assert found.status_code == 400
    assert found.json()["type"] == "error"
    assert found.json()["error"]["type"] == "invalid_request_error"


def test_the_key_comes_in_a_header_of_its_own(checkpoint):
    import anthropic

    with serving(checkpoint, api_keys=("alpha",)) as live:
        with anthropic.Anthropic(base_url=live.url, api_key="alpha", max_retries=0) as client:
            assert ask(client).content
        with anthropic.Anthropic(base_url=live.url, api_key="beta", max_retries=0) as client:
            with pytest.raises(anthropic.AuthenticationError) as caught:
                ask(client)
            assert json.loads(caught.value.response.text)["error"]["type"] == "authentication_error"
