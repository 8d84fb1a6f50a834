"""The providers' computer tools, through their official clients, against servers that follow the published schemas."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holotron.agent import remote
from holotron.agent.agent import Agent, Budget
from holotron.agent.anthropic_computer import KEPT_IMAGES, OMITTED, AnthropicComputer
from holotron.agent.chat import ChatOptions, Message, ModelUnavailable
from holotron.agent.cost import Price, PriceTable, usage_of
from holotron.agent.formats.remote import AnthropicComputerFormat, OpenAIComputerFormat
from holotron.agent.openai_computer import OpenAIComputer
from holotron.cli.errors import Misuse
from holotron.cli.policies import Chosen
from tests.agent.test_policy_format import shot
from tests.env.conftest import world  # noqa: F401  fixture
from tests.env.driver import World
from tests.env.site import Site

SIZE = (500, 320)
STYLE = ChatOptions(max_tokens=300)
PAGE = '<title>{0}</title><a href="/{1}" style="position:fixed;left:40%;top:40%;width:20%;height:20%">go</a>'
MIDDLE = {"x": 250, "y": 160}
Answer = dict[str, Any] | tuple[int, dict[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site({"/0": PAGE.format("first", 1), "/1": PAGE.format("second", 2), "/2": "<title>third</title>"}) as found:
        yield found


class Provider(Site):
    """Answers in order at one path; keeps the requests and their bodies."""

    def __init__(self, path: str, *answers: Answer) -> None:
        super().__init__({path: self._next})
        self._answers = list(answers)

    def _next(self) -> tuple[int, dict[str, str], str]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        status, headers, body = answer if isinstance(answer, tuple) else (200, {}, answer)
        return status, {"content-type": "application/json"} | headers, json.dumps(body)

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies]


def play(world: World, site: Site, make: Callable[[], Any], policy_format: Any, steps: int = 8):  # noqa: F811
    async def main():
        model = make()
        try:
            async with world.env(site.origin, width=SIZE[0], height=SIZE[1]) as env:
                await env.goto(site.origin + "/0")
                agent = Agent(model, env, policy_format=policy_format, budget=Budget(steps=steps))
                return agent, await agent.run("Go to the third page")
        finally:
            await model.aclose()

    return world.run(main())


# ---- OpenAI ----


def response(number: int, *output: dict[str, Any]) -> dict[str, Any]:
    usage = {
        "input_tokens": 1000 * number,
        "input_tokens_details": {"cached_tokens": 100 * number, "cache_write_tokens": 0},
        "output_tokens": 10 * number,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 1010 * number,
    }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "m",
        "output": list(output),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage,
    }


def call(number: int, checks: tuple[dict[str, Any], ...] = (), **what: Any) -> dict[str, Any]:
    return {
        "type": "computer_call",
        "id": f"cu_{number}",
        "call_id": f"call_{number}",
        "status": "completed",
        "pending_safety_checks": list(checks),
        **what,
    }


def message(text: str, kind: str = "output_text") -> dict[str, Any]:
    part = {"type": kind, "text": text, "annotations": []} if kind == "output_text" else {"type": kind, kind: text}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


CLICK = {"type": "click", "button": "left", **MIDDLE}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "It is a link."}]}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    monkeypatch.setattr(remote, "LONGEST_PAUSE", 0.0)


def openai(server: Provider, model: str = "computer-use-preview-2025-03-11") -> Callable[[], OpenAIComputer]:
    return lambda: OpenAIComputer(model, STYLE, base_url=server.origin + "/v1")


def test_openais_computer_tool(world: World, site: Site) -> None:  # noqa: F811
    busy = (429, {"retry-after": "0"}, {"error": {"message": "Rate limit reached", "type": "requests", "code": "x"}})
    several = call(2, actions=[{"type": "move", "x": 1, "y": 1}, CLICK])
    answers = (response(1, REASONING, call(1, action=CLICK)), busy, response(2, several), response(3, message("done")))
    with Provider("/v1/responses", *answers) as server:
        agent, ending = play(world, site, openai(server), OpenAIComputerFormat())
    assert (ending.reason, ending.answer) == ("answered", "done")
    assert [step.observation.title for step in agent.steps] == ["first", "second", "second", "third"]
    assert [step.action.action for step in agent.steps] == ["click", "hover", "click", "answer"]
    assert agent.steps[0].thought == "It is a link."
    spent = [(s.reply.prompt_tokens, s.reply.cached_tokens, s.reply.completion_tokens) for s in agent.steps]
    assert spent == [(1000, 100, 10), (2000, 200, 20), (None, None, 0), (3000, 300, 30)]
    first, second, again, last = server.asked
    assert first["tools"] == [
        {"type": "computer_use_preview", "display_width": 500, "display_height": 320, "environment": "browser"}
    ]
    [asked] = first["input"]
    assert asked["content"][0] == {"type": "input_text", "text": "Go to the third page"}
    assert asked["content"][1]["image_url"].startswith("data:image/png;base64,")
    assert (first["truncation"], first["max_output_tokens"]) == ("auto", 300)
    assert "previous_response_id" not in first
    assert second == again
    assert second["previous_response_id"] == "resp_1"
    [output] = second["input"]
    assert (output["type"], output["call_id"]) == ("computer_call_output", "call_1")
    assert output["output"]["type"] == "computer_screenshot"
    assert [item["call_id"] for item in last["input"]] == ["call_2"], "two actions of one call have one screenshot"


def test_what_openai_refuses(world: World, site: Site) -> None:  # noqa: F811
    with Provider("/v1/responses", response(1, message("I cannot do that.", "refusal"))) as server:
        _, ending = play(world, site, openai(server, "gpt-5.5"), OpenAIComputerFormat())
    assert (ending.reason, ending.detail) == ("infeasible", "I cannot do that.")
    assert server.asked[0]["tools"] == [{"type": "computer"}]
    check = {"id": "c1", "code": "malicious_instructions", "message": "The page gives orders."}
    with Provider("/v1/responses", response(1, call(1, checks=(check,), action=CLICK))) as server:
        _, ending = play(world, site, openai(server), OpenAIComputerFormat())
    assert ending.reason == "infeasible"
    assert ending.detail == "the provider wants a person to confirm: The page gives orders."


# ---- Anthropic ----


def said(number: int, stop: str, *content: dict[str, Any]) -> dict[str, Any]:
    usage = {
        "input_tokens": 1000,
        "output_tokens": 10 * number,
        "cache_read_input_tokens": 50,
        "cache_creation_input_tokens": 5,
    }
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }


def use(number: int, **values: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "computer", "input": values}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


TAP = {"action": "left_click", "coordinate": [250, 160]}


def anthropic(server: Provider) -> Callable[[], AnthropicComputer]:
    return lambda: AnthropicComputer("claude-test", STYLE, base_url=server.origin)


def test_anthropics_computer_tool(world: World, site: Site) -> None:  # noqa: F811
    overloaded = (529, {}, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    both = [use(3, action="mouse_move", coordinate=[1, 1]), use(4, **TAP)]
    answers = (
        said(1, "tool_use", text("I look first."), use(1, action="screenshot")),
        overloaded,
        said(2, "tool_use", use(2, **TAP)),
        said(3, "tool_use", *both),
        *(said(4 + n, "tool_use", use(5 + n, action="wait", duration=0)) for n in range(5)),
        said(9, "end_turn", text("It is done.")),
    )
    with Provider("/v1/messages", *answers) as server:
        agent, ending = play(world, site, anthropic(server), AnthropicComputerFormat(), steps=12)
    assert (ending.reason, ending.answer) == ("answered", "It is done.")
    assert [step.observation.title for step in agent.steps[:5]] == ["first", "first", "second", "second", "third"]
    assert agent.steps[0].thought == "I look first."
    spent = [(s.reply.prompt_tokens, s.reply.cached_tokens, s.reply.completion_tokens) for s in agent.steps[:4]]
    assert spent == [(1055, 50, 10), (1055, 50, 20), (1055, 50, 30), (None, None, 0)]
    cost = usage_of(agent.steps[:3]).money(Price(input=3, cached=0.3, output=15))
    assert cost == pytest.approx((3 * 1005 * 3 + 3 * 50 * 0.3 + 60 * 15) / 1e6)
    first, last = server.asked[0], server.asked[-1]
    assert first["tools"] == [
        {"type": "computer_20250124", "name": "computer", "display_width_px": 500, "display_height_px": 320}
    ]
    [asked] = first["messages"]
    assert [block["type"] for block in asked["content"]] == ["text", "image"]
    results = server.asked[4]["messages"][-1]["content"]
    assert [block["tool_use_id"] for block in results] == ["toolu_3", "toolu_4"], "every call has its result"
    assert results[0]["content"] == "done"
    assert results[1]["content"][0]["type"] == "image"
    sent = json.dumps(last["messages"])
    assert sent.count('"type": "image"') == KEPT_IMAGES
    assert sent.count(OMITTED) == len([m for m in last["messages"] if m["role"] == "user"]) - KEPT_IMAGES


def test_what_anthropic_refuses(world: World, site: Site) -> None:  # noqa: F811
    with Provider("/v1/messages", said(1, "refusal", text("Not this."))) as server:
        _, ending = play(world, site, anthropic(server), AnthropicComputerFormat())
    assert (ending.reason, ending.detail) == ("infeasible", "the provider's model refused: Not this.")


# ---- what goes wrong ----


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_errors_are_told_in_words(monkeypatch: pytest.MonkeyPatch, provider: str) -> None:
    path = "/v1/responses" if provider == "openai" else "/v1/messages"
    make = openai if provider == "openai" else anthropic
    error = {"type": "error", "error": {"type": "t", "message": "Incorrect key"}}

    async def ask() -> None:
        model = make(server)()
        chat = await model.open()
        try:
            await chat.say([Message("user", "Do it", shot(1), image_first=False)])
        finally:
            await chat.close()
            await model.aclose()

    for status, words in (
        (401, "401 Incorrect key; look at [A-Z]+_API_KEY"),
        (400, "refused the request: 400 Incorrect key"),
        (429, "could not be used 6 times: 429 Incorrect key"),
    ):
        with Provider(path, (status, {"retry-after": "0"}, error)) as server:
            with pytest.raises(ModelUnavailable, match=words):
                asyncio.run(ask())
            assert len(server.bodies) == (6 if status == 429 else 1)
    variable = f"{provider.upper()}_API_KEY"
    monkeypatch.delenv(variable)
    with pytest.raises(ModelUnavailable, match=f"{variable} is not set"):
        make(server)()


def test_a_client_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(ModelUnavailable, match=r"pip install 'holotron\[remote\]'"):
        AnthropicComputer("claude-test")


def test_a_provider_on_the_command_line() -> None:
    chosen = Chosen(None, False, "anthropic", "claude-test")
    assert chosen.policy_format() == AnthropicComputerFormat()
    assert chosen.info(chosen.policy_format()).extra == {"format": "anthropic-computer"}
    prices = PriceTable({"claude*": Price(3, 0.3, 15)})
    assert chosen.info(chosen.policy_format(), prices).extra == {
        "format": "anthropic-computer", "price_input": 3, "price_cached": 0.3, "price_output": 15, "currency": "USD"
    }  # fmt: skip
    for name, form in ((None, None), ("claude-test", "json")):
        with pytest.raises(Misuse, match="wants --name MODEL, and has its own --format"):
            Chosen(None, False, "anthropic", name, form)
