"""How `holotron run` sets up a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from holotron.cli.errors import Misuse

if TYPE_CHECKING:
    from holotron.env.browser.options import EnvOptions


def environment_options(
    url: str,
    width: int,
    height: int,
    allow: Sequence[str] | None,
    anywhere: bool,
    secrets: Sequence[str] | None,
    ask: Sequence[str] | None,
) -> EnvOptions:
    """A browser that may visit the start page's origin and what was allowed besides, and nothing else."""
    from holotron.env.browser.options import EnvOptions
    from holotron.env.safety.confirm import Confirmation, Question
    from holotron.env.safety.policy import SafetyPolicy
    from holotron.env.safety.secrets import Secret, Secrets

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Misuse(f"--url is {url!r}; it must begin with http:// or https://")
    home = f"{parts.scheme}://{parts.netloc.rsplit('@', 1)[-1]}"
    safety = SafetyPolicy(None) if anywhere else SafetyPolicy([home, *(allow or ())])
    known = {}
    for text in secrets or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Misuse("--secret is NAME=VALUE or NAME=@FILE")
        known[name] = Secret(Path(value[1:]).read_text("utf-8").strip() if value[:1] == "@" else value, (home,))

    async def agree(question: Question) -> bool:
        words = f"{question.action} on {question.text or question.url} — go on?"
        return await asyncio.to_thread(typer.confirm, words, err=True)

    return EnvOptions(
        width=width,
        height=height,
        safety=safety,
        secrets=Secrets(known),
        confirmation=Confirmation(list(ask), agree) if ask else None,
    )
