"""Tries attacks in a real browser: with the rules, where nothing may arrive, and without them, where it must."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.launch import LaunchOptions
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.errors import ActionFailed, EnvError, InfrastructureError, Refused
from holotron.env.safety.policy import SafetyPolicy
from tests.attacks.catalogue import Attack
from tests.env.site import Datagrams, Site

NAME = "evil.example"
# A page tries at once; what it tries later than this is not waited for. A control that arrives ends its wait.
TRY_SECONDS, CONTROL_SECONDS = 3.0, 8.0


@dataclass(frozen=True)
class Outcome:
    """What became of an attack. arrived: connections, datagrams or names that got out. refused: what was told of it.

    control: whether it arrives where nothing forbids it; None if that was not tried.
    """

    attack: Attack
    arrived: int
    refused: int
    control: bool | None = None


async def try_all(
    attacks: Sequence[Attack], launch: LaunchOptions, *, at_once: int = 4, on_done: Callable[[Outcome], None] = print
) -> list[Outcome]:
    """Every attack, and its control, each with sites of its own."""
    open_launch = replace(launch, arguments=())  # nothing closes the ways around the proxy
    async with Browsers(1, launch) as browsers, Browsers(1, open_launch) as plain:
        turns = asyncio.Semaphore(at_once)

        async def tried(attack: Attack) -> Outcome:
            arrived, refused = await _try(attack, browsers)
            if attack.plain:
                control = await _try_plainly(attack, plain)
            else:
                control = (await _try(attack, browsers, allowed=True))[0] > 0
            return Outcome(attack, arrived, refused, control)

        async def judged(attack: Attack) -> Outcome:
            async with turns:
                try:
                    outcome = await tried(attack)
                except InfrastructureError:  # says nothing about the attack
                    outcome = await tried(attack)
                on_done(outcome)
                return outcome

        return await asyncio.gather(*map(judged, attacks))


class Sites:
    """The site that may be visited, with an attack's pages, and the ears of the one that may not."""

    def __init__(self, attack: Attack) -> None:
        self.good, self.evil = Site({"/start": "<title>start</title>", "/next": "next"}), Site({"/": "evil"})
        self.datagrams = Datagrams()
        self.asked: list[str] = []
        for path, page in attack.pages.items():
            if isinstance(page, str):
                self.good.pages[path] = f"<!doctype html><title>attack</title>{self.fill(page)}"
            else:
                status, headers, body = page
                filled = {name: self.fill(value) for name, value in headers.items()}
                self.good.pages[path] = (status, filled, self.fill(body))

    def __enter__(self) -> Sites:
        return self

    def __exit__(self, *error: Any) -> None:
        self.good.__exit__(None, None, None)
        self.evil.__exit__(None, None, None)
        self.datagrams.close()

    def fill(self, text: str) -> str:
        words = {"EVIL": self.evil.origin, "GOOD": self.good.origin, "HOST": self.evil.host, "NAME": NAME}
        words |= {"PORT": str(self.evil.port), "UDP": str(self.datagrams.port)}
        return re.sub(r"\b[A-Z]{3,}\b", lambda word: words.get(word[0], word[0]), text)

    async def resolve(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return ["127.0.0.1"]

    @property
    def arrived(self) -> int:
        """What got out: connections, and questions for names that say something."""
        return self.evil.connections + sum(host.endswith(NAME) for host in self.asked)


async def _try(attack: Attack, browsers: Browsers, allowed: bool = False) -> tuple[int, int]:
    """How much arrived, and how much was refused."""
    with Sites(attack) as sites:
        safety = SafetyPolicy(None, allow_private=True) if allowed else SafetyPolicy([sites.good.origin])
        options = EnvOptions(
            width=500, height=320, safety=safety, resolve=sites.resolve, settle_seconds=1.0, call_seconds=60.0
        )
        async with await BrowserEnv.open(browsers, options) as env:
            refused = 0
            try:
                await env.goto(f"{sites.good.origin}/start")
                await env.goto(sites.fill(attack.goto) if attack.goto else f"{sites.good.origin}/")
                if attack.click:
                    await env.click(40, 30)
            except Refused:
                refused += 1
            except ActionFailed:
                pass  # the page went where it may not
            deadline = asyncio.get_running_loop().time() + (CONTROL_SECONDS if allowed else TRY_SECONDS)
            while asyncio.get_running_loop().time() < deadline and not (allowed and sites.arrived):
                with suppress(EnvError):
                    refused += len((await env.observe()).refusals)
                if refused and not allowed:
                    deadline = min(deadline, asyncio.get_running_loop().time() + 0.5)
                await asyncio.sleep(0.05)
        return sites.arrived + (0 if allowed else sites.datagrams.count()), refused


async def _try_plainly(attack: Attack, browsers: Browsers) -> bool:
    """Whether it arrives from a browser without rules, proxy or isolation."""
    with Sites(attack) as sites:
        lease = await browsers.open_context()
        try:
            page = await lease.context.new_page()
            await page.goto(f"{sites.good.origin}/")
            deadline = asyncio.get_running_loop().time() + CONTROL_SECONDS
            while asyncio.get_running_loop().time() < deadline:
                if sites.datagrams.count() or sites.evil.connections:
                    return True
                await asyncio.sleep(0.05)
            return False
        finally:
            await lease.close()
