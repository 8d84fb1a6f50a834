"""What `run` and `rollout` share: how a browser is set up from the command line, and the episode it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from holotron.cli.errors import Misuse

if TYPE_CHECKING:
    from holotron.agent.agent import Ending, StepRecord
    from holotron.env.browser.options import EnvOptions
    from holotron.episodes.record import PolicyInfo
    from holotron.episodes.writer import EpisodeWriter


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Misuse(f"--url is {url!r}; it must begin with http:// or https://")
    return f"{parts.scheme}://{parts.netloc.rsplit('@', 1)[-1]}"


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

    home = origin_of(url)
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


class Recorder:
    """Writes one episode, or nothing where no folder was named."""

    def __init__(self, folder: Path | None, task: str, url: str, policy: PolicyInfo, options: EnvOptions) -> None:
        self._writer: EpisodeWriter | None = None
        self._finished = False
        if folder is None:
            return
        from holotron.env.task import Task
        from holotron.episodes.record import EnvironmentInfo
        from holotron.episodes.store import EpisodeStore, new_id

        store = EpisodeStore(folder, redact=options.secrets.redact)
        viewport = (options.width, options.height)
        environment = EnvironmentInfo(name="browser", viewport=viewport)
        self._writer = store.begin(Task(text=task, url=url), policy, environment, episode_id=new_id())

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is None:
            return
        from holotron.episodes.record import Outcome

        if not self._finished and error is not None:
            stopped = isinstance(error, KeyboardInterrupt | asyncio.CancelledError)
            outcome = Outcome(reason="stopped" if stopped else "infrastructure", detail=str(error)[:1000])
            self._writer.finish(outcome)
        self._writer.close()

    async def add(self, step: StepRecord) -> None:
        if self._writer is not None:
            from holotron.episodes.recording import step_of

            await asyncio.to_thread(self._writer.add_step, step_of(step), step.observation.image)

    def finish(self, ending: Ending) -> None:
        if self._writer is not None:
            from holotron.episodes.recording import outcome_of

            self._writer.finish(outcome_of(ending))
            self._finished = True
