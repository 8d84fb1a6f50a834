"""How `holotron run` sets up a browser, and the episode it leaves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from holotron.cli.errors import Misuse, misuse
from holotron.cli.terminal import visible

if TYPE_CHECKING:
    from holotron.env.browser.options import EnvOptions
    from holotron.episodes.record import PolicyInfo
    from holotron.episodes.writer import EpisodeWriter


URL_SECRET = "url-password"


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
    """The address without its password, and a browser that may visit its origin, what was allowed besides, and no more.

    A password in the address becomes a secret, as does a user who stands there alone, such as a token.
    """
    from holotron.env.browser.environment import complete_address
    from holotron.env.browser.options import EnvOptions
    from holotron.env.safety.confirm import Confirmation, Question
    from holotron.env.safety.policy import SafetyPolicy
    from holotron.env.safety.secrets import Login, Secret, Secrets

    with misuse(ValueError):
        parts = urlsplit(complete_address(url))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Misuse(f"--url is {url!r}; it must begin with http:// or https://")
        credentials, _, place = parts.netloc.rpartition("@")
        home = f"{parts.scheme}://{place}"
        safety = SafetyPolicy(None if anywhere else [home, *(allow or ())], private or False)
    known, login = {}, None
    if credentials:
        user, _, password = (unquote(part) for part in credentials.partition(":"))
        known[URL_SECRET] = Secret(password or user, (home,))
        login = Login(user if password else "", URL_SECRET)
    for text in secrets or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Misuse("--secret is NAME=VALUE or NAME=@FILE")
        known[name] = Secret(Path(value[1:]).read_text("utf-8").strip() if value[:1] == "@" else value, (home,))

    async def agree(question: Question) -> bool:
        return await asyncio.to_thread(_agree, f"{question.action}: {question.text or question.url} — go on?")

    return parts._replace(netloc=place).geturl(), EnvOptions(
        width=width,
        height=height,
        safety=safety,
        secrets=Secrets(known),
        login=login,
        confirmation=Confirmation(list(ask), agree) if ask else None,
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


@contextmanager
def recorded(
    folder: Path | None, task: str, url: str, policy: PolicyInfo, options: EnvOptions
) -> Iterator[EpisodeWriter | None]:
    """The writer of one episode, or None where no folder was named. What breaks inside is the episode's outcome."""
    if folder is None:
        yield None
        return
    from holotron.env.task import Task
    from holotron.episodes.record import EnvironmentInfo, Outcome
    from holotron.episodes.store import EpisodeStore, new_id

    store = EpisodeStore(folder, redact=options.secrets.redact)
    environment = EnvironmentInfo(name="browser", viewport=(options.width, options.height))
    with store.begin(Task(text=task, url=url), policy, environment, episode_id=new_id()) as writer:
        try:
            yield writer
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt | asyncio.CancelledError)
            writer.finish(Outcome(reason="stopped" if stopped else "infrastructure", detail=str(error)[:1000]))
            raise
