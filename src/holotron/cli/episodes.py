"""How `holotron run` sets up a browser, and the episode it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from holotron.cli.errors import Misuse

if TYPE_CHECKING:
    from holotron.env.browser.options import EnvOptions
    from holotron.episodes.record import PolicyInfo
    from holotron.episodes.writer import EpisodeWriter


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
