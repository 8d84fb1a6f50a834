"""/v1/responses with the real `openai` client."""

from __future__ import annotations

import json

import openai
import pytest

from holotron.server.stored_responses import StoredResponses

from .live import serving
from .test_openai_client import picture

CLICK = {
    "type": "function",
    "name": "click",
    "parameters": {
        "type": "object",
        "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["x"],
        "additionalProperties": False,
    },
    "strict": True,
}


@pytest.fixture(scope="module")
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def ask(client, given="Hello", **more):
    more = {"model": "tiny", "max_output_tokens": 8, "temperature": 0, "extra_body": {"ignore_eos": True}} | more
    return client.responses.create(input=given, **more)


def test_an_answer_is_that_of_a_chat(client):
    response = ask(client, instructions="Be brief.")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    chat = client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=8, temperature=0, extra_body={"ignore_eos": True}
    )
    assert response.output_text == chat.choices[0].message.content
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.usage.output_tokens == 8
    assert response.instructions == "Be brief."
    assert response.output[0].type == "message"


def test_a_stream_has_the_published_events(client):
    more = {"max_output_tokens": 20, "extra_body": {"structured_outputs": {"regex": "[a-z]{8}"}}}
    whole = ask(client, **more)
    with client.responses.stream(model="tiny", input="Hello", temperature=0, **more) as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        *("response.created", "response.in_progress", "response.output_item.added", "response.content_part.added")
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert kinds[-4:] == [
        *("response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed")
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert final.output_text == whole.output_text
    assert len(final.output_text) == 8
    assert events[0].response.id == final.id


def test_an_answer_of_nothing_is_a_message_without_text(client):
    """Clients take the last item of `output` for the answer."""
    more = {"extra_body": {"structured_outputs": {"regex": "(.{0})"}}}
    (item,) = ask(client, **more).output
    assert (item.type, item.content[0].text) == ("message", "")
    with client.responses.stream(model="tiny", input="Hello", **more) as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == ""
    assert "response.output_text.done" in kinds
    assert "response.output_text.delta" not in kinds


def test_a_chain_is_a_session(client, live):
    first = ask(client, "One", instructions="Count.")
    second = ask(client, "Two", previous_response_id=first.id, instructions="Count.")
    held = first.usage.total_tokens
    assert second.usage.input_tokens_details.cached_tokens == held
    assert second.usage.input_tokens - held < 30
    assert second.session_id == first.session_id
    more = {"previous_response_id": first.id, "instructions": "Count."}
    other, again = ask(client, "Three", **more), ask(client, "Three", **more)  # from an earlier one: a branch
    assert other.session_id != first.session_id
    assert other.output_text == again.output_text
    assert other.usage.input_tokens_details.cached_tokens >= held - 1
    third = ask(client, "Three", previous_response_id=second.id, instructions="Count.")
    assert third.usage.input_tokens_details.cached_tokens == second.usage.total_tokens
    for wrong in ("resp_none_1", first.id[:-1] + "9", "x"):
        with pytest.raises(openai.BadRequestError, match="previous_response_id") as refused:
            ask(client, previous_response_id=wrong)
        assert refused.value.code == "previous_response_not_found"
    stateless = ask(client, store=False)
    assert not hasattr(stateless, "session_id")


def test_responses_are_read_again_and_deleted(client, http):
    first = ask(client, "One")
    second = list(ask(client, "Two", previous_response_id=first.id, stream=True))[-1].response
    assert client.responses.retrieve(first.id) == first
    assert client.responses.retrieve(second.id) == second
    branch = ask(client, "Three", previous_response_id=first.id)
    for unknown in ("resp_none_1", "x", f"resp_{branch.session_id}_1", ask(client, store=False).id):
        with pytest.raises(openai.NotFoundError, match="response_id"):
            client.responses.retrieve(unknown)

    client.responses.delete(first.id)
    for use in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError, match="was deleted"):
            use(first.id)
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        ask(client, previous_response_id=first.id)
    third = ask(client, "Three", previous_response_id=second.id)  # what came after it stays
    assert third.usage.input_tokens_details.cached_tokens == second.usage.total_tokens
    sessions = {session["id"] for session in http.get("/v1/sessions").json()["data"]}
    assert {first.session_id, branch.session_id} <= sessions
    for response in (second, third, branch):
        assert http.delete(f"/v1/responses/{response.id}").json() == {
            "id": response.id,
            "object": "response",
            "deleted": True,
        }
    sessions = {session["id"] for session in http.get("/v1/sessions").json()["data"]}
    assert not {first.session_id, branch.session_id} & sessions


def test_input_items_are_listed_page_by_page(client, http):
    parts = [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": picture()}]
    call = {"type": "function_call", "call_id": "c", "name": "click", "arguments": "{}"}
    given = [{"role": "user", "content": parts}, call]
    given += [
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        {"role": "assistant", "content": "So."},
    ]
    first = ask(client, given, tools=[CLICK])
    second = ask(client, "Two", previous_response_id=first.id)
    listed = client.responses.input_items.list
    items = list(listed(second.id, order="asc", limit=2))  # the client asks for the next pages
    kinds = ["message", "function_call", "function_call_output", "message", "message", "message"]
    assert [item.type for item in items] == kinds
    assert items[4].id == first.output[0].id
    assert (items[3].content[0].type, items[5].content[0].text) == ("output_text", "Two")
    assert items[0].content[1].image_url is None
    assert len({item.id for item in items}) == 6
    assert list(listed(second.id)) == items[::-1]
    page = listed(second.id, limit=2, after=items[4].id)
    assert ([item.id for item in page.data], page.has_more) == ([items[3].id, items[2].id], True)
    (seen,) = listed(first.id, order="asc", limit=1, include=["message.input_image.image_url"]).data
    assert seen.content[1].image_url == picture()
    for query, field in (("limit=0", "limit"), ("limit=101", "limit"), ("order=up", "order"), ("after=x", "after")):
        error = http.get(f"/v1/responses/{first.id}/input_items?{query}").json()["error"]
        assert error["param"] == field
    client.responses.delete(first.id)
    assert [item.id for item in listed(second.id)] == [items[5].id]
    with pytest.raises(openai.NotFoundError, match="was deleted"):
        listed(first.id)


def test_what_needs_a_background_is_refused(client):
    response = ask(client)
    with pytest.raises(openai.BadRequestError, match="background can be cancelled"):
        client.responses.cancel(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel("resp_none_1")
    with pytest.raises(openai.BadRequestError, match="in the background is streamed"):
        client.responses.retrieve(response.id, stream=True)
    for more in ({"background": True}, {"conversation": "conv_1"}, {"prompt": {"id": "p"}}):
        with pytest.raises(openai.BadRequestError, match=f"{next(iter(more))}: this server has none"):
            ask(client, **more)


def test_stored_responses_have_a_limit(monkeypatch):
    monkeypatch.setattr("holotron.server.stored_responses.KEPT_BYTES", 3000)
    stored = StoredResponses()
    for number in range(100):
        stored.add({"id": str(number), "text": "x" * 1000})
        stored.add({"id": str(number), "text": "y" * 1000})
    assert [id_ for id_ in map(str, range(100)) if stored.get(id_)] == ["98", "99"]


@pytest.mark.parametrize("stream", [False, True])
def test_tools(client, stream):
    more = {"tools": [CLICK], "tool_choice": "required", "temperature": 1, "max_output_tokens": 200}
    more |= {"parallel_tool_calls": False, "extra_body": {"seed": 3}}
    if stream:
        events = list(ask(client, stream=True, **more))
        response = events[-1].response
        kinds = [event.type for event in events if "function_call" in event.type]
        assert kinds == ["response.function_call_arguments.delta", "response.function_call_arguments.done"]
    else:
        response = ask(client, **more)
    (call,) = response.output
    assert response.status == "completed"
    assert call.type == "function_call"
    assert 0 <= json.loads(call.arguments)["x"] <= 99
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "clicked"}
    followed = ask(client, [result], previous_response_id=response.id, tools=[CLICK])
    assert followed.usage.input_tokens_details.cached_tokens >= response.usage.total_tokens - 1
    history = [{"role": "user", "content": "Hello"}, call.model_dump(exclude_none=True), result]
    assert ask(client, history, tools=[CLICK], store=False).output_text == followed.output_text
    named = ask(client, **(more | {"tool_choice": {"type": "function", "name": "click"}, "stream": False}))
    assert named.output[0].name == "click"


def test_images_and_forms(client):
    parts = [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": picture(), "detail": "auto"}]
    seen = ask(client, [{"role": "user", "content": parts}], extra_body={"return_token_ids": True})
    assert seen.prompt_token_ids.count(5) == 6
    assert len(seen.token_ids) == seen.usage.output_tokens
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    assert json.loads(ask(client, text=form, max_output_tokens=50).output_text) == {"n": 7}


def test_thoughts_are_an_item(client):
    body = {"chat_template_kwargs": {"enable_thinking": True}, "structured_outputs": {"regex": "yes"}, "seed": 1}
    events = list(ask(client, stream=True, max_output_tokens=400, temperature=1, extra_body=body))
    response = events[-1].response
    assert response.output[0].type == "reasoning"
    assert 0 < response.usage.output_tokens_details.reasoning_tokens <= response.usage.output_tokens
    assert "response.reasoning_text.delta" in [event.type for event in events]
    if response.status == "completed":
        assert response.output_text == "yes"
        history = [item.model_dump(exclude_none=True) for item in response.output]
        assert ask(client, [{"role": "user", "content": "Hello"}, *history, {"role": "user", "content": "So?"}]).id


def test_logprobs(client):
    response = ask(client, include=["message.output_text.logprobs"], top_logprobs=2)
    assert len(response.output[0].content[0].logprobs) == 8


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "no"}]}]},
            "input.0.content.0.image_url",
        ),
        ({"input": [{"role": "user", "content": 5}]}, "input.0.content"),
        ({"input": "a", "tool_choice": "required"}, "tool_choice"),
        ({"input": "a" * 9000}, "input"),
        ({"input": "a", "text": {"format": {"type": "json_schema", "schema": {"type": 5}}}}, "text.format"),
        ({"input": "a", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "a", "n": 2}, "n"),
        ({"input": "a", "metadata": {"a": "b" * 513}}, "metadata.a"),
        ({"input": "a", "truncation": "middle"}, "truncation"),
        ({"input": "a" * 9000, "truncation": "auto"}, "truncation is not done"),
    ],
)
def test_errors_are_in_the_clients_words(http, body, field):
    answer = http.post("/v1/responses", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == field or field in error["message"]
    assert "messages" not in error["message"]


def test_chains_that_nobody_asked_for_make_room(checkpoint):
    with serving(checkpoint, max_sessions_per_key=2) as live:
        with openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as client:
            responses = [ask(client, str(number)) for number in range(4)]
            assert ask(client, previous_response_id=responses[-1].id).id
            with pytest.raises(openai.BadRequestError, match="previous_response_id"):
                ask(client, previous_response_id=responses[0].id)
        with live.client() as http:
            http.post("/v1/responses", json={"input": "a", "tool_choice": "required"})
            assert len(http.get("/v1/sessions").json()["data"]) <= 2
