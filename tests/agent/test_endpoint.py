"""Servers of others that say they speak OpenAI's API: where they are, and what they answer otherwise than ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from holotron.agent.chat import ChatOptions, Message, ModelUnavailable, Reply
from holotron.agent.endpoint import EndpointModel, EndpointRefused, api_root, find_card
from tests.env.site import Answer, Site

SAID = json.dumps({"choices": [{"message": {"content": "hello"}}]})
MODELS = json.dumps({"object": "list", "data": [{"id": "one"}]})


def ask(site: Site) -> Reply:
    async def run() -> Reply:
        model = EndpointModel(site.origin, None, None, ChatOptions(seed=1), attempts=2)
        try:
            return await (await model.open()).say([Message("user", "hi")])
        finally:
            await model.aclose()

    return asyncio.run(run())


def server(chat: Answer | Callable[[], Answer] = SAID, models: str = MODELS, **pages: Answer) -> Site:
    return Site(
        {"/v1/chat/completions": chat, "/v1/models": models} | {f"/v1/{name}": page for name, page in pages.items()}
    )


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        ("https://example.com/vllm", "https://example.com/vllm/v1"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", None),
        ("https://api.z.ai/api/paas/v4", None),
        ("https://openrouter.ai/api/v1", None),
    ],
)
def test_where_the_paths_of_an_api_begin(given: str, root: str | None) -> None:
    assert api_root(given) == (root or given.rstrip("/"))


def test_a_server_that_answers_200_to_everything_has_no_sessions() -> None:
    unknown = json.dumps({"error": "Unexpected endpoint or method. (GET /v1/sessions)"})
    with server(sessions=unknown) as site:
        assert ask(site).text == "hello"
        assert "session_id" not in json.loads(site.bodies[-1])


def test_an_error_with_status_200_is_tried_again() -> None:
    answers = [json.dumps({"error": {"message": "Provider returned error", "code": 502}}), SAID]
    with server(lambda: answers.pop(0)) as site:
        assert ask(site).text == "hello"
    with server(json.dumps({"error": "out of memory"})) as site, pytest.raises(ModelUnavailable, match="out of memory"):
        ask(site)


def test_what_a_model_refuses_is_left_out() -> None:
    refused: dict[str, Any] = {"max_tokens": "max_completion_tokens", "temperature": None}

    def answer() -> Answer:
        asked = json.loads(site.bodies[-1])
        for name in refused:
            if name in asked:
                return (400, {}, json.dumps({"error": {"message": f"Unsupported: '{name}'", "param": name}}))
        return SAID

    with server(answer) as site:
        assert ask(site).text == "hello"
        asked = json.loads(site.bodies[-1])
        assert asked["max_completion_tokens"] == ChatOptions().max_tokens
        assert {"max_tokens", "temperature"}.isdisjoint(asked)
        assert asked["seed"] == 1
        refused["messages"] = None
        with pytest.raises(EndpointRefused, match="Unsupported: 'messages'"):
            ask(site)


def test_several_conversations_may_be_refused_at_once() -> None:
    model, error = EndpointModel("http://127.0.0.1:1"), EndpointRefused(400, "no such field", "top_p")
    assert model.leaves_out("top_p", error)
    assert model.leaves_out("top_p", error)
    assert not model.leaves_out("messages", error)
    assert model.taken({"top_p": 1.0, "max_tokens": 5}) == {"max_tokens": 5}


@pytest.mark.parametrize(
    ("pages", "complaint"),
    [
        ({"models": json.dumps({"data": None})}, r"lists no models; say which one is meant \(--name\)"),
        ({"models": "<h1>Welcome</h1>"}, "something else than JSON"),
        ({"chat": json.dumps({"choices": []})}, "has no choices"),
        ({"chat": "<h1>Welcome</h1>"}, "something else than JSON"),
    ],
)
def test_what_is_no_api_is_told(pages: dict[str, str], complaint: str) -> None:
    with server(**pages) as site, pytest.raises(ModelUnavailable, match=complaint):
        ask(site)


def test_a_path_that_is_not_there_is_named() -> None:
    refused = r"404: nothing here \(http://127.0.0.1:\d+/v1/chat/completions\)"
    with Site({"/v1/models": MODELS}) as site, pytest.raises(EndpointRefused, match=refused):
        ask(site)


def test_a_page_in_the_place_of_an_answer_is_told_by_its_title() -> None:
    page = (404, {}, "<!DOCTYPE HTML><html><head><title>Not here</title></head><body><p>Long words</p></body></html>")
    with server(page) as site, pytest.raises(EndpointRefused, match="404: a web page in the place of JSON, 'Not here'"):
        ask(site)


PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9", "socks://127.0.0.1:9"])
def test_a_server_on_this_machine_is_asked_without_a_proxy(
    no_proxies: pytest.MonkeyPatch, name: str, proxy: str
) -> None:
    no_proxies.setenv(name, proxy)
    with server() as site:
        assert find_card(site.origin) == {"id": "one"}
        assert ask(site).text == "hello"


def test_a_proxy_that_does_not_answer_is_named(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("HTTP_PROXY", "http://ada:secret@127.0.0.1:9")
    with pytest.raises(ModelUnavailable, match=r"proxy 127\.0\.0\.1:9; NO_PROXY=models\.invalid does without") as told:
        find_card("http://models.invalid/v1")
    assert "secret" not in str(told.value)
    no_proxies.setenv("HTTP_PROXY", "socks://127.0.0.1:9")
    with pytest.raises(ModelUnavailable, match="the proxy that the environment names is no address"):
        find_card("http://models.invalid/v1")
    no_proxies.setenv("NO_PROXY", "models.invalid")
    no_proxies.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with pytest.raises(ModelUnavailable) as direct:
        find_card("http://models.invalid/v1")
    assert "proxy" not in str(direct.value)


def test_an_address_without_a_scheme_is_told() -> None:
    with pytest.raises(ModelUnavailable, match=r"127\.0\.0\.1:8000 is no address; it must begin with http://"):
        find_card("127.0.0.1:8000")
