"""How `holotron run` sets up a browser."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holotron.cli.errors import Misuse, misuse
from holotron.cli.terminal import visible

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
    private: Sequence[str] | None = None,
) -> tuple[str, EnvOptions]:
    """The address without its password, and a browser as the command line wants it; see `options_for_address`."""
    from holotron.env.browser.start import options_for_address
    from holotron.env.safety.confirm import Confirmation, Question

    known = {}
    for text in secrets or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Misuse("--secret is NAME=VALUE or NAME=@FILE")
        known[name] = Path(value[1:]).read_text("utf-8").strip() if value[:1] == "@" else value

    async def agree(question: Question) -> bool:
        return await asyncio.to_thread(_agree, f"{question.action}: {question.text or question.url} — go on?")

    confirmation = Confirmation(list(ask), agree) if ask else None
    with misuse(ValueError):
        return options_for_address(
            url,
            (width, height),
            allow=allow or (),
            anywhere=anywhere,
            private=private or (),
            secrets=known,
            confirmation=confirmation,
        )


def _agree(words: str) -> bool:
    """Ask until the answer is yes or no; the end of input is a no."""
    while True:
        print(f"{visible(words)} [y/N] ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print("no: there is nobody to ask, the input has ended", file=sys.stderr)
        if line.strip().lower() in ("", "n", "no"):
            return False
        if line.strip().lower() in ("y", "yes"):
            return True
