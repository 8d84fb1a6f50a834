"""Sessions over HTTP: they go on where they were, fork, roll back, and are what one prompt of the same tokens gives."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest

from holotron.agent.endpoint import find_card
from holotron.agent.policy_format import BareJsonFormat, read_format

CHAT, TEXT, SESSIONS = "/v1/chat/completions", "/v1/completions", "/v1/sessions"
GREEDY = {"temperature": 0, "max_tokens": 8, "ignore_eos": True, "return_token_ids": True}


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **GREEDY, **more}


def ok(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text[:300]
    return answer.json()


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text[:300]
    return answer.json()["error"]


@pytest.fixture
def session(http):
    id_ = ok(http.post(SESSIONS))["id"]
    yield f"{SESSIONS}/{id_}"
    http.delete(f"{SESSIONS}/{id_}")


def turn(http: httpx.Client, session: str, text: str, **more: Any) -> dict[str, Any]:
    return ok(http.post(f"{session}/turns", json=says(text, **more)))


def ids(answer: dict[str, Any]) -> list[int]:
    return answer["choices"][0]["token_ids"]


def cached(answer: dict[str, Any]) -> int:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def go_on(http: httpx.Client, tokens: list[int], **more: Any) -> list[int]:
    """What one prompt of these tokens is answered with."""
    return ids(ok(http.post(TEXT, json={"prompt": tokens, **GREEDY, **more})))


def test_a_session_from_beginning_to_end(http):
    opened = ok(http.post(SESSIONS, json={"ttl": 50}))
    assert opened["object"] == "session"
    assert opened["ttl"] == 50
    session = f"{SESSIONS}/{opened['id']}"
    assert opened["id"] in [one["id"] for one in ok(http.get(SESSIONS))["data"]]
    first = turn(http, session, "One")
    told = ok(http.get(session))
    assert told["tokens"] == first["usage"]["total_tokens"]
    assert told["residency"] == "gpu"  # the device, whatever it is
    assert told["device_bytes"] > 0
    assert not told["busy"]
    assert not told["running"]
    assert len(told["turns"]) == 1
    assert ok(http.post(f"{session}/park"))["residency"] in ("host", "none")
    assert ok(http.get(session))["device_bytes"] == 0
    assert ok(http.post(f"{session}/resume"))["tokens"] == told["tokens"]
    assert cached(turn(http, session, "Two")) >= told["tokens"] - 1
    assert ok(http.delete(session)) == {"id": opened["id"], "deleted": True}
    for method in ("GET", "DELETE"):
        assert error(http.request(method, session), 404)["code"] == "session_not_found"


@pytest.mark.parametrize("by_path", [True, False])
def test_turns_are_what_one_prompt_of_the_same_tokens_gives(http, session, by_path):
    tokens: list[int] = []
    for text in ("The first.", "The second, which is longer.", "The third"):
        if by_path:
            answer = turn(http, session, text)
        else:
            answer = ok(http.post(CHAT, json=says(text, session_id=session.rsplit("/", 1)[1])))
        assert answer["session_id"] == session.rsplit("/", 1)[1]
        tokens += answer["prompt_token_ids"]
        assert go_on(http, tokens) == ids(answer)
        assert answer["usage"]["prompt_tokens"] == len(tokens)
        tokens += ids(answer)
    assert ok(http.get(session))["tokens"] == len(tokens)


def test_streaming_in_a_session(http, session):
    body = says("Stream", stream=True, stream_options={"include_usage": True})
    events = [line[6:] for line in http.post(f"{session}/turns", json=body).text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    said = [id_ for chunk in chunks for choice in chunk["choices"] for id_ in choice["token_ids"]]
    assert go_on(http, chunks[-1]["prompt_token_ids"]) == said
    assert chunks[-1]["usage"]["completion_tokens"] == len(said)
    assert cached(turn(http, session, "And on")) >= chunks[-1]["usage"]["total_tokens"] - 1


def test_forks_share_what_they_have_and_go_their_own_ways(http, session):
    first = turn(http, session, "Once upon a time")
    forks = [f"{SESSIONS}/{fork['id']}" for fork in ok(http.post(f"{session}/fork", json={"n": 3}))["data"]]
    assert len(set(forks)) == 3
    answers = [turn(http, one, text) for one, text in zip([session, *forks], "ABCC", strict=True)]
    so_far = [*first["prompt_token_ids"], *ids(first)]
    for answer in answers:
        assert cached(answer) >= len(so_far) - 1
        assert go_on(http, [*so_far, *answer["prompt_token_ids"]]) == ids(answer)
    assert ids(answers[2]) == ids(answers[3])
    assert answers[0]["prompt_token_ids"] != answers[1]["prompt_token_ids"] != answers[2]["prompt_token_ids"]
    assert ok(http.delete(session))
    assert ok(http.get(forks[0]))["tokens"] == answers[1]["usage"]["total_tokens"]
    for fork in forks:
        ok(http.delete(fork))


def test_rolling_back_forgets_turns(http, session):
    turns = [turn(http, session, text) for text in ("One", "Two", "Three")]
    before = turns[0]["usage"]["total_tokens"]
    told = ok(http.post(f"{session}/rollback", json={"turn": 1}))
    assert told["tokens"] == before
    assert len(told["turns"]) == 1
    assert ids(turn(http, session, "Two")) == ids(turns[1])
    assert ok(http.post(f"{session}/rollback"))["tokens"] == before
    assert error(http.post(f"{session}/rollback", json={"turn": 1}), 400)["param"] == "turn"
    assert ok(http.post(f"{session}/rollback", json={"turn": 0}))["tokens"] == 0
    assert ids(turn(http, session, "One")) == ids(turns[0])


@pytest.mark.parametrize("by_path", [True, False])
def test_an_answer_is_said_anew(http, session, by_path):
    first = turn(http, session, "One")
    answer = turn(http, session, "Two")
    told = ok(http.post(f"{session}/rollback", json={"keep_prompt": True}))
    assert told["tokens"] == answer["usage"]["prompt_tokens"]
    assert error(http.post(f"{session}/turns", json=says("Three")), 400)["param"] == "messages"
    body = {"messages": [], **GREEDY}
    if by_path:
        anew = ok(http.post(f"{session}/turns", json=body))
    else:
        anew = ok(http.post(CHAT, json=body | {"session_id": session.rsplit("/", 1)[1]}))
    assert ids(anew) == ids(answer)
    assert anew["prompt_token_ids"] == []
    assert cached(anew) >= first["usage"]["total_tokens"]
    assert error(http.post(f"{session}/turns", json=body), 400)["param"] == "messages"
    third = turn(http, session, "Three")
    so_far = [*first["prompt_token_ids"], *ids(first), *answer["prompt_token_ids"], *ids(anew)]
    assert go_on(http, [*so_far, *third["prompt_token_ids"]]) == ids(third)
    told = ok(http.post(f"{session}/rollback", json={"turn": 1}))  # the answer said anew, and its question with it
    assert told["tokens"] == first["usage"]["total_tokens"]
    assert error(http.post(f"{session}/turns", json=body), 400)["param"] == "messages"
    again = turn(http, session, "Two")
    assert again["prompt_token_ids"] == answer["prompt_token_ids"]
    assert ids(again) == ids(answer)


def test_a_session_of_tokens(http, session):
    id_ = session.rsplit("/", 1)[1]
    tokens: list[int] = []
    for given in ([65, 66, 67], [68], list(range(100, 140))):
        answer = ok(http.post(TEXT, json={"prompt": given, "session_id": id_, **GREEDY}))
        tokens += given
        assert ids(answer) == go_on(http, tokens)
        assert answer["session_id"] == id_
        tokens += ids(answer)
    assert ok(http.get(session))["tokens"] == len(tokens)
    assert error(http.post(f"{session}/turns", json=says("Words")), 400)["param"] == "session_id"
    fork = ok(http.post(f"{session}/fork"))["data"][0]["id"]
    ok(http.post(f"{session}/rollback", json={"turn": -1}))
    on = ok(http.post(TEXT, json={"prompt": [99], "session_id": fork, **GREEDY}))
    assert ids(on) == go_on(http, [*tokens, 99])
    ok(http.delete(f"{SESSIONS}/{fork}"))


def test_one_thing_at_a_time(live, http, session, monkeypatch):
    monkeypatch.setattr("holotron.server.sessions.MOMENT", 0.05)
    body = says("Long", max_tokens=3000, stream=True)
    with live.client() as other, other.stream("POST", f"{session}/turns", json=body) as stream, live.paused():
        lines = stream.iter_lines()
        next(lines)
        assert ok(http.get(session))["busy"]
        for answer in (
            http.post(f"{session}/turns", json=says("Me too")),
            http.post(CHAT, json=says("Me too", session_id=session.rsplit("/", 1)[1])),
            http.post(TEXT, json={"prompt": "a", "session_id": session.rsplit("/", 1)[1]}),
            http.post(f"{session}/fork"),
            http.post(f"{session}/rollback"),
            http.post(f"{session}/park"),
        ):
            assert error(answer, 409)["code"] == "session_busy"


def idle(http: httpx.Client, session: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while (told := ok(http.get(session)))["busy"] or told["running"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return told


def test_deleting_ends_a_running_turn(live, http, session):
    body = says("Long", max_tokens=3000, stream=True)
    with live.client() as other, other.stream("POST", f"{session}/turns", json=body) as stream:
        lines = stream.iter_lines()
        next(lines)
        assert ok(http.delete(session))["deleted"]
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2][6:])["choices"][0]["finish_reason"] == "abort"
    assert live.state.admission.total == 0


@pytest.mark.parametrize("keep", [True, False])
def test_a_client_that_leaves_does_not_harm_its_session(live, http, session, keep):
    """What it had asked is forgotten, so that it can ask again; or it stays with what was answered, where asked to."""
    first = turn(http, session, "One")
    body = says("Two", max_tokens=3000, stream=True, keep_partial=keep)
    with live.client() as other, other.stream("POST", f"{session}/turns", json=body) as stream:
        for _, line in zip(range(20), stream.iter_lines(), strict=False):
            assert line is not None
    told = idle(http, session)
    assert len(told["turns"]) == (2 if keep else 1)
    assert (told["tokens"] > first["usage"]["total_tokens"]) is keep
    if keep:
        third = turn(http, session, "Three")
        assert cached(third) >= told["tokens"] - 1
        assert ok(http.post(f"{session}/rollback", json={"turn": 1}))["tokens"] == first["usage"]["total_tokens"]
    again = turn(http, session, "Two")
    assert go_on(http, [*first["prompt_token_ids"], *ids(first), *again["prompt_token_ids"]]) == ids(again)


def test_a_client_that_leaves_before_its_turn_began(live, http, session):
    """However early it goes, the server and the engine agree on what the session has heard."""
    first = turn(http, session, "One")

    async def leave(seconds: float) -> None:
        async with httpx.AsyncClient(base_url=live.url, trust_env=False) as client:
            asking = asyncio.create_task(client.post(f"{session}/turns", json=says("Nobody hears this" * 50)))
            await asyncio.sleep(seconds)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    for number in range(12):
        asyncio.run(leave(0.002 + 0.001 * number))
        time.sleep(0.05)
        told = idle(http, session)
        known = next(s for s in live.state.sessions._sessions.values() if s.id in session).turns
        assert len(told["turns"]) == known
    if known > 1:  # it was answered before it left
        ok(http.post(f"{session}/rollback", json={"turn": 1}))
    again = turn(http, session, "Two")
    assert go_on(http, [*first["prompt_token_ids"], *ids(first), *again["prompt_token_ids"]]) == ids(again)


def test_many_sessions_at_once(live, http):
    async def life(client: httpx.AsyncClient, number: int) -> tuple[list[int], list[int], list[int]]:
        session = f"{SESSIONS}/{ok(await client.post(SESSIONS))['id']}"
        tokens: list[int] = []
        for word in ("first", "second"):
            answer = ok(await client.post(f"{session}/turns", json=says(f"Session {number}, {word} turn")))
            before = [*tokens, *answer["prompt_token_ids"]]
            tokens = [*before, *ids(answer)]
        await client.delete(session)
        return before, ids(answer), tokens

    async def lives() -> list[tuple[list[int], list[int], list[int]]]:
        async with httpx.AsyncClient(base_url=live.url, trust_env=False, timeout=60) as client:
            return await asyncio.gather(*(life(client, number) for number in range(24)))

    results = asyncio.run(lives())
    for before, said, _ in results[:6]:
        assert go_on(http, before) == said
    assert len({tuple(before) for before, _, _ in results}) == 24
    assert live.state.admission.total == 0


def test_the_model_and_its_sessions_tell_how_it_is_asked_as_an_agent(http, live):
    stated = {"format": "json-bare", "size": [640, 480]}
    assert http.get("/v1/models").json()["data"][0]["policy_format"] == stated
    session = http.post("/v1/sessions").json()
    assert session["policy_format"] == stated
    assert http.get(f"/v1/sessions/{session['id']}").json()["policy_format"] == stated
    http.delete(f"/v1/sessions/{session['id']}")
    assert read_format(find_card(live.url + "/v1")["policy_format"]) == BareJsonFormat(size=(640, 480))
    assert find_card(live.url, "another") == {}
