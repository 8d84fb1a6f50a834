"""A grammar that is compiled for ever is given up, and leaves nothing running."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from holotron.engine.grammar import Grammar, GrammarError
from holotron.model.text.tokenizer import load_tokenizer
from holotron.server.grammar_check import GrammarCheck
from tests.env.driver import descendants

ENDLESS = Grammar.from_schema({"allOf": [{"type": "string", "pattern": f"a.{{0,{n}}}b"} for n in range(1, 59)]})


def test_a_grammar_that_takes_for_ever_is_given_up(checkpoint):
    async def main():
        check = GrammarCheck(load_tokenizer(checkpoint), 512, [2], seconds=30)
        await check.check(Grammar.from_schema({"type": "integer"}))
        (first,) = check.processes
        with pytest.raises(GrammarError, match="not valid"):
            await check.check(Grammar("regex", "("))
        assert check.processes == {first}  # it goes on
        waiting = asyncio.create_task(check.check(ENDLESS))
        while not await asyncio.to_thread(_is_busy, first.pid):
            await asyncio.sleep(0.02)
        waiting.cancel()
        assert await first.wait() < 0
        assert check.processes == set()
        check._seconds = 0.2
        with pytest.raises(GrammarError, match=r"took more than 0 seconds|ended"):
            await check.check(ENDLESS)
        assert check.processes == set()

    asyncio.run(asyncio.wait_for(main(), 60))


def _is_busy(pid: int) -> bool:
    """Whether it computes: it sleeps while it waits for a grammar."""
    with open(f"/proc/{pid}/task/{max(map(int, os.listdir(f'/proc/{pid}/task')))}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "R"


def test_a_client_that_leaves_takes_its_grammar_along(live):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": json.loads(ENDLESS.source)}}
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5, "response_format": form}
    with live.client() as http:
        with ThreadPoolExecutor() as sender:
            leaving = sender.submit(http.post, "/v1/chat/completions", json=body, timeout=3)
            _until(lambda: _checking() > 0)
            with pytest.raises(httpx.ReadTimeout):
                leaving.result()
        _until(lambda: _checking() == 0)
        assert http.post("/v1/chat/completions", json={**body, "response_format": {"type": "json_object"}}).is_success


def _checking() -> int:
    return sum("grammar_check" in command for command in descendants(os.getpid()).values())


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
