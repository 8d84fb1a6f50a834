"""What responses go on from: other instructions and tools, items by their ids, and tokens counted beforehand."""

from __future__ import annotations

import openai
import pytest

from .live import serving
from .test_openai_client import picture
from .test_responses import CLICK, ask

LOOK = {
    "role": "user",
    "content": [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": picture()}],
}
TYPE = CLICK | {"name": "type"}
CALL = {"tools": [CLICK], "tool_choice": "required", "max_output_tokens": 200, "parallel_tool_calls": False}
CALL |= {"temperature": 1, "extra_body": {"seed": 3}}


@pytest.fixture(scope="module")
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def user(text):
    return {"role": "user", "content": text}


def said(response):
    return [item.model_dump(exclude_none=True) for item in response.output]


def same(client, response, given, **more):
    """Whether a response read and said what one does that is sent the whole conversation."""
    whole = ask(client, given, store=False, **more)
    return (whole.usage.input_tokens, whole.output_text) == (response.usage.input_tokens, response.output_text)


def test_other_instructions_write_the_chain_anew(client):
    first = ask(client, [LOOK], instructions="Count.")
    second = ask(client, "Two", previous_response_id=first.id, instructions="Sing a song.")
    history = [LOOK, *said(first), user("Two")]
    assert same(client, second, history, instructions="Sing a song.")
    assert second.session_id != first.session_id
    assert (second.instructions, second.previous_response_id) == ("Sing a song.", first.id)

    third = ask(client, "Three", previous_response_id=second.id, instructions="Sing a song.")
    assert third.session_id == second.session_id
    assert third.usage.input_tokens_details.cached_tokens == second.usage.total_tokens
    bare = ask(client, "Four", previous_response_id=third.id)  # without instructions there are none
    history += [*said(second), user("Three"), *said(third), user("Four")]
    assert same(client, bare, history)
    assert bare.instructions is None
    listed = list(client.responses.input_items.list(bare.id, order="asc", limit=3))
    assert len(listed) == len(history)

    back = ask(client, "Two", previous_response_id=first.id, instructions="Count.")
    assert back.session_id == first.session_id
    assert back.usage.input_tokens_details.cached_tokens == first.usage.total_tokens


def test_other_tools_write_the_chain_anew(client):
    first = ask(client, **CALL)
    (call,) = said(first)
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "clicked"}
    followed = ask(client, [result], previous_response_id=first.id, tools=[CLICK], tool_choice="none")
    assert followed.session_id == first.session_id
    history = [user("Hello"), call, result]
    for tools in ([CLICK, TYPE], [CLICK | {"description": "Clicks."}], []):
        other = ask(client, [result], previous_response_id=first.id, tools=tools)
        assert other.session_id != first.session_id
        assert same(client, other, history, tools=tools)
    stateless = ask(client, [result], previous_response_id=first.id, store=False)
    assert not hasattr(stateless, "session_id")
    assert same(client, stateless, history)


def test_a_chain_that_is_not_stored_any_more_keeps_its_instructions(client):
    first = ask(client, [LOOK], instructions="Count.")
    second = ask(client, "Two", previous_response_id=first.id, instructions="Count.")
    client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError, match="not all of this chain is stored any more") as refused:
        ask(client, "Three", previous_response_id=second.id, instructions="Sing.")
    assert (refused.value.param, refused.value.code) == ("previous_response_id", "previous_response_not_found")
    third = ask(client, "Three", previous_response_id=second.id, instructions="Count.")
    assert third.session_id == second.session_id


@pytest.mark.parametrize("stream", [False, True])
def test_items_come_by_their_ids(client, stream):
    first = ask(client, [LOOK, user("Hello")], **CALL, stream=stream)
    if stream:
        events = list(first)
        first = events[-1].response
        (added,) = [event.item for event in events if event.type == "response.output_item.added"]
        assert added.id == first.output[0].id
    (call,) = said(first)
    asked = client.responses.input_items.list(first.id, order="asc").data
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "clicked"}
    references = [{"type": "item_reference", "id": item.id} for item in (*asked, *first.output)]
    second = ask(client, [*references, result], tools=[CLICK])
    assert same(client, second, [LOOK, user("Hello"), call, result], tools=[CLICK])
    # What was written out is stored so: an item of an item by reference, and a chain on from it.
    (seen, *_) = client.responses.input_items.list(second.id, order="asc").data
    third = ask(client, [{"type": "item_reference", "id": seen.id}, user("And?")])
    assert same(client, third, [LOOK, user("And?")])
    other = ask(client, "So?", previous_response_id=second.id, instructions="Sing.")
    history = [LOOK, user("Hello"), call, result, *said(second), user("So?")]
    assert same(client, other, history, instructions="Sing.")


def test_items_that_are_not_there(client):
    def refused(error, id_, match, **more):
        with pytest.raises(error, match=match) as caught:
            ask(client, [user("Hello"), {"type": "item_reference", "id": id_}], **more)
        assert (caught.value.param, caught.value.type) == ("input.1", "invalid_request_error")
        assert id_ in caught.value.message

    gone, first = ask(client), ask(client)
    item = first.output[0].id
    client.responses.delete(gone.id)
    unstored = ask(client, store=False)
    for id_ in ("x", "msg_1", f"{item[:-1]}-", gone.output[0].id, unstored.output[0].id):
        refused(openai.NotFoundError, id_, "there is no item")
    second = ask(client, "Two", previous_response_id=first.id)
    refused(openai.BadRequestError, item, "is there already", previous_response_id=second.id)
    with pytest.raises(openai.NotFoundError, match="there is no item"):
        client.responses.input_tokens.count(model="tiny", input=[{"type": "item_reference", "id": "x"}])


def test_items_are_their_owners(checkpoint):
    with serving(checkpoint, api_keys=("alpha", "beta")) as live:
        alpha, beta = (
            openai.OpenAI(base_url=f"{live.url}/v1", api_key=key, max_retries=0) for key in ("alpha", "beta")
        )
        with alpha, beta:
            reference = {"type": "item_reference", "id": ask(alpha).output[0].id}
            assert ask(alpha, [reference, user("So?")]).id
            with pytest.raises(openai.NotFoundError, match="there is no item"):
                ask(beta, [reference, user("So?")])


def test_tokens_are_counted_as_they_are_read(client, http):
    def counted(given, **more):
        count = client.responses.input_tokens.count(model="tiny", input=given, **more)
        assert count.object == "response.input_tokens"
        response = ask(client, given, **more)
        assert count.input_tokens == response.usage.input_tokens
        return response

    before = len(http.get("/v1/sessions").json()["data"])
    bare = client.responses.input_tokens.count(model="tiny", input="Hello").input_tokens
    assert len(http.get("/v1/sessions").json()["data"]) == before
    assert bare < counted("Hello", instructions="Be brief.", tools=[CLICK]).usage.input_tokens
    first = counted([LOOK], instructions="Count.")
    second = counted("Two", previous_response_id=first.id, instructions="Count.")
    counted("Three", previous_response_id=second.id, instructions="Count.")
    counted("Other", previous_response_id=first.id, instructions="Count.")  # a branch
    counted("Three", previous_response_id=second.id, instructions="Sing.", tools=[TYPE])
    counted([{"type": "item_reference", "id": first.output[0].id}, LOOK])
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client.responses.input_tokens.count(model="tiny", input="Hello", previous_response_id="resp_none_1")
    with pytest.raises(openai.NotFoundError, match="is not served here"):
        client.responses.input_tokens.count(model="none", input="Hello")
