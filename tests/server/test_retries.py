"""A client that tries again: one turn for one question, whatever became of the tries before."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import httpx
import openai
import pytest

from .live import Live

CHAT, SESSIONS = "/v1/chat/completions", "/v1/sessions"
ASKED = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "ignore_eos": True}
LONG = ASKED | {"max_tokens": 3000}


@pytest.fixture
def session(http):
    id_ = http.post(SESSIONS).json()["id"]
    yield id_
    http.delete(f"{SESSIONS}/{id_}")


def turns(http: httpx.Client, session: str) -> int:
    """How many there are once nothing is under way."""
    deadline = time.monotonic() + 60
    while (told := http.get(f"{SESSIONS}/{session}").json())["busy"] or told["running"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return len(told["turns"])


def take(http: httpx.Client, session: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
    return http.post(f"{SESSIONS}/{session}/turns", json=ASKED | more, headers=headers)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_got_lost_is_given_again(http, session, stream):
    key = {"Idempotency-Key": f"one-{stream}"}
    first, again = (take(http, session, key, stream=stream) for _ in range(2))
    assert first.status_code == again.status_code == 200
    assert first.content == again.content
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert turns(http, session) == 1
    assert take(http, session, {"Idempotency-Key": f"two-{stream}"}).status_code == 200
    assert turns(http, session) == 2


def test_a_key_is_for_one_request_of_one_caller(http, session):
    key = {"Idempotency-Key": "mine"}
    assert take(http, session, key).status_code == 200
    other = take(http, session, key, max_tokens=9)
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "idempotency_key_reused"
    assert http.post(CHAT, json=ASKED, headers={"Idempotency-Key": "x" * 300}).status_code == 400
    assert turns(http, session) == 1


def test_what_failed_is_tried_anew(http, session):
    key = {"Idempotency-Key": "failing"}
    assert take(http, session, key, n=2).status_code == 400
    assert take(http, session, key).status_code == 200
    assert turns(http, session) == 1


def test_rolling_back_twice_by_mistake_goes_back_once(http, session):
    for _ in range(3):
        assert take(http, session).status_code == 200
    for _ in range(2):
        answer = http.post(f"{SESSIONS}/{session}/rollback", headers={"Idempotency-Key": "back"})
        assert answer.status_code == 200
    assert turns(http, session) == 2


def test_a_second_try_waits_for_the_first(live: Live, http, session):
    key = {"Idempotency-Key": "slow"}
    answers: list[httpx.Response] = []

    def ask() -> None:
        with live.client() as client:
            answers.append(take(client, session, key))

    with live.paused():
        asking = [threading.Thread(target=ask) for _ in range(3)]
        for thread in asking:
            thread.start()
        deadline = time.monotonic() + 60
        while not live.state.admission.total:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    for thread in asking:
        thread.join(60)
    assert [answer.status_code for answer in answers] == [200] * 3
    assert len({answer.content for answer in answers}) == 1
    assert turns(http, session) == 1


def test_openais_client_tries_again_after_its_timeout_and_asks_once(live: Live, http, session):
    """Its tries share no key; that the first has left is enough."""
    client = openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=1, timeout=1.0)
    with client, live.paused(), pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(
            model="tiny", messages=ASKED["messages"], max_tokens=8, extra_body={"session_id": session}
        )
    assert turns(http, session) == 0
    assert take(http, session, expected_turns=0).status_code == 200


def test_a_later_try_of_openais_client_gets_the_answer_of_the_first(http, session):
    first = take(http, session, {"x-stainless-retry-count": "0"})
    again = take(http, session, {"x-stainless-retry-count": "1"})
    assert first.content == again.content
    assert turns(http, session) == 1
    anew = take(http, session, {"x-stainless-retry-count": "0"})  # the same words, said once more on purpose
    assert anew.json()["id"] != first.json()["id"]
    assert turns(http, session) == 2


def test_a_turn_of_another_number_is_refused(http, session):
    assert take(http, session, expected_turns=0).status_code == 200
    refused = take(http, session, expected_turns=0)
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "turn_conflict"
    assert refused.json()["error"]["param"] == "expected_turns"
    assert take(http, session, expected_turns=1).status_code == 200
    alone = http.post(CHAT, json=ASKED | {"expected_turns": 1})
    assert alone.json()["error"]["param"] == "expected_turns"


def test_an_answer_said_anew_is_forgotten_too_but_not_its_question(live: Live, http, session):
    assert take(http, session).status_code == 200
    before = http.post(f"{SESSIONS}/{session}/rollback", json={"keep_prompt": True}).json()["tokens"]
    anew = LONG | {"messages": [], "stream": True}
    with live.client() as other, other.stream("POST", f"{SESSIONS}/{session}/turns", json=anew) as stream:
        next(stream.iter_lines())
    assert turns(http, session) == 0
    assert http.get(f"{SESSIONS}/{session}").json()["tokens"] == before
    assert http.post(f"{SESSIONS}/{session}/turns", json=ASKED | {"messages": []}).status_code == 200


def test_one_who_stops_reading_at_the_last_word_keeps_the_turn(live: Live, http, session):
    """Many do, without the end of the stream."""
    body, key = ASKED | {"stream": True}, {"Idempotency-Key": "last word"}
    path = f"{SESSIONS}/{session}/turns"
    with live.client() as other, other.stream("POST", path, json=body, headers=key) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {") and json.loads(line[6:])["choices"][0]["finish_reason"]:
                break
    assert turns(http, session) == 1
    again = http.post(path, json=body, headers=key)
    assert again.text.endswith("data: [DONE]\n\n")
    assert turns(http, session) == 1


def test_many_sessions_whose_clients_leave_and_return(live: Live, http):
    async def life(client: httpx.AsyncClient, number: int) -> tuple[str, int]:
        session = (await client.post(SESSIONS)).json()["id"]
        asking = asyncio.create_task(client.post(f"{SESSIONS}/{session}/turns", json=LONG))
        await asyncio.sleep(0.02 * number)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        while (answer := await client.post(f"{SESSIONS}/{session}/turns", json=ASKED)).status_code == 409:
            pass  # it is still being rolled back
        return session, answer.status_code

    async def lives() -> list[tuple[str, int]]:
        async with httpx.AsyncClient(base_url=live.url, trust_env=False, timeout=60) as client:
            return await asyncio.gather(*(life(client, number) for number in range(12)))

    for session, status in asyncio.run(lives()):
        assert status == 200
        assert turns(http, session) == 1
        http.delete(f"{SESSIONS}/{session}")
