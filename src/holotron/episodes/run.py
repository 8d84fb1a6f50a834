"""One task in a browser, from its words to its result: `holotron.run`, and what `holotron run` does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ValidationError

from holotron.agent.agent import Agent, Budget, Hook, StepRecord, call_hook
from holotron.agent.chat import ChatModel, ChatOptions, Message, numbered_screenshots, say_once
from holotron.agent.cost import TokenUsage, usage_of
from holotron.agent.formats.base import json_part
from holotron.agent.open_model import open_endpoint, open_model, resolve_format
from holotron.agent.policy_format import JsonFormat, PolicyFormat
from holotron.agent.stuck import StuckLimits
from holotron.env.browser.environment import BrowserEnv, complete_address
from holotron.env.browser.launch import LaunchOptions
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.safety.confirm import Confirmation, Question
from holotron.env.safety.policy import SafetyPolicy
from holotron.env.safety.secrets import Login, Secret, Secrets
from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo, Episode, Outcome, PolicyInfo, Step
from holotron.episodes.recording import outcome_of, step_of
from holotron.episodes.store import EpisodeStore, new_id
from holotron.episodes.writer import EpisodeWriter

BUNDLED = "holotron-nano"
SIZE = (1280, 800)
URL_SECRET = "url-password"
SHOWN = 3  # screenshots, the last ones, from which wanted fields are read
Data = TypeVar("Data", bound=BaseModel)


@dataclass(frozen=True)
class RunResult(Generic[Data]):
    """What came of a task.

    success: whether the policy says that it is done (reason answered, or done); nothing else was checked. reason: as in
    Ending. detail: more about it. data: what was to be extracted, None where that failed, and `detail` says why.
    screenshots: one PNG for each step of the episode.
    """

    answer: str
    success: bool
    reason: str
    detail: str
    episode: Episode
    screenshots: tuple[bytes, ...]
    data: Data | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.episode.steps

    @property
    def usage(self) -> TokenUsage:
        """Tokens and seconds."""
        return usage_of(self.steps)


def run(task: str, url: str, **options: Any) -> RunResult[Any]:
    """Do a task in a browser, and wait for its result. The options are those of `arun`."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(arun(task, url, **options))
    raise RuntimeError("holotron.run waits for the result, which an event loop must not; write: await holotron.arun(…)")


async def arun(
    task: str,
    url: str,
    *,
    model: str | Path | None = None,
    endpoint: str | None = None,
    name: str | None = None,
    device: str | None = None,
    policy_format: PolicyFormat | None = None,
    chat: ChatOptions | None = None,
    budget: Budget | None = None,
    stuck: StuckLimits | None = StuckLimits(),
    size: tuple[int, int] | None = None,
    headed: bool = False,
    allow: Sequence[str] = (),
    anywhere: bool = False,
    allow_private: Sequence[str] = (),
    secrets: Mapping[str, str] | None = None,
    ask: Sequence[str] = (),
    record: str | Path | None = None,
    extract: type[Data] | None = None,
    on_step: Hook[[StepRecord], None] | None = None,
    on_question: Hook[[Question], bool] | None = None,
    should_stop: Hook[[StepRecord], bool | str | None] | None = None,
) -> RunResult[Data]:
    """Do a task in a browser.

    model: a folder, hub id or preset that runs in this process; endpoint: an OpenAI-compatible server instead, or
    "openai" or "anthropic" for its computer tool, and name the model there. Without either the small bundled policy
    acts. allow, anywhere: origins besides that of the url; allow_private: names that may lead to this machine or a
    private network. secrets: values by name, typed where the policy writes {{secret:NAME}}. ask: patterns of actions
    that on_question must agree to; without it they are refused. record: a folder that keeps the episode. extract: a
    Pydantic class that `data` of the result becomes. stuck: None lets the policy go round in circles.
    """
    if model is not None and endpoint is not None:
        raise ValueError("model acts in this process and endpoint elsewhere; give one of them")
    local = None if endpoint is not None else str(model or BUNDLED)
    found = policy_format or await asyncio.to_thread(resolve_format, local, endpoint, name) or JsonFormat()
    found = found.on(date.today().isoformat())
    address, env_options = browser_options(
        url,
        size or found.size or SIZE,
        allow=allow,
        anywhere=anywhere,
        allow_private=allow_private,
        secrets=secrets,
        ask=ask,
        on_question=on_question,
    )
    options = found.fitted(chat or ChatOptions())
    info = PolicyInfo(model=name or local or endpoint or "", extra={"format": found.spec})
    opened = open_model(local, options, device) if local is not None else open_endpoint(endpoint or "", name, options)
    async with opened as policy:
        one = OneRun(policy, found, info, env_options, budget or Budget(), stuck, headed)
        return await one.play(task, address, record, extract, on_step=on_step, should_stop=should_stop)


@dataclass(frozen=True)
class OneRun:
    """A policy and a browser for one task after another."""

    policy: ChatModel
    policy_format: PolicyFormat
    info: PolicyInfo
    options: EnvOptions
    budget: Budget
    stuck: StuckLimits | None = None
    headed: bool = False

    async def play(
        self,
        task: str,
        url: str,
        record: str | Path | None = None,
        extract: type[Data] | None = None,
        *,
        on_step: Hook[[StepRecord], None] | None = None,
        should_stop: Hook[[StepRecord], bool | str | None] | None = None,
    ) -> RunResult[Data]:
        """What came of it. EnvError, ModelUnavailable: it could not be tried; a recorded episode says so, too."""
        redact = self.options.secrets.redact
        async with self._browser() as env:
            with _recorded(record, Task(text=task, url=url), self.info, self.options) as (store, writer):

                async def told(step: StepRecord) -> None:
                    await asyncio.to_thread(writer.add_step, step_of(step), step.observation.image)
                    if on_step is not None:
                        await call_hook(on_step, step)

                await env.goto(url)
                agent = Agent(
                    self.policy,
                    env,
                    policy_format=self.policy_format,
                    budget=self.budget,
                    stuck=self.stuck,
                    on_step=told,
                    should_stop=should_stop,
                )
                ending = await agent.run(redact(task))
                writer.finish(outcome_of(ending))
                episode = await asyncio.to_thread(store.read, writer.info.id)
            data, problem = None, ending.detail
            if extract is not None:
                shots = [step.observation.image for step in agent.steps[-SHOWN:]]
                try:
                    data = await _extracted(self.policy, extract, redact(task), redact(ending.answer), shots)
                except ValidationError as error:
                    problem = f"no {extract.__name__} could be made of it: {error.errors(include_url=False)[0]['msg']}"
        success = ending.success if ending.success is not None else ending.reason in ("answered", "done")
        shown = tuple(step.observation.image for step in agent.steps)
        return RunResult(redact(ending.answer), success, ending.reason, redact(problem), episode, shown, data)

    @asynccontextmanager
    async def _browser(self) -> AsyncIterator[BrowserEnv]:
        async with (
            Browsers(options=LaunchOptions(headless=not self.headed)) as browsers,
            await BrowserEnv.open(browsers, self.options) as env,
        ):
            yield env


def browser_options(
    url: str,
    size: tuple[int, int],
    *,
    allow: Sequence[str] = (),
    anywhere: bool = False,
    allow_private: Sequence[str] = (),
    secrets: Mapping[str, str] | None = None,
    ask: Sequence[str] = (),
    on_question: Hook[[Question], bool] | None = None,
) -> tuple[str, EnvOptions]:
    """The address without its password, and a browser that may visit its origin, what was allowed besides, and no more.

    A password in the address becomes a secret, as does a user who stands there alone, such as a token.
    """
    file = Path(url.removeprefix("file://"))
    if file.suffix in (".html", ".htm") and os.path.isfile(file):  # which an overlong address is not, without an error
        serve = f"serve its folder with python -m http.server --directory {file.parent}"
        raise ValueError(f"the url is a file, {file}; {serve} and give http://localhost:8000/{file.name}")
    parts = urlsplit(complete_address(url))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"the url is {url!r}; it must begin with http:// or https://")
    credentials, _, place = parts.netloc.rpartition("@")
    home = f"{parts.scheme}://{place}"
    known, login = {name: Secret(value, (home,)) for name, value in (secrets or {}).items()}, None
    if credentials:
        user, _, password = (unquote(part) for part in credentials.partition(":"))
        known[URL_SECRET] = Secret(password or user, (home,))
        login = Login(user if password else "", URL_SECRET)

    async def agree(question: Question) -> bool:
        return on_question is not None and bool(await call_hook(on_question, question))

    return parts._replace(netloc=place).geturl(), EnvOptions(
        width=size[0],
        height=size[1],
        safety=SafetyPolicy(None if anywhere else [home, *allow], allow_private or False),
        secrets=Secrets(known),
        login=login,
        confirmation=Confirmation(list(ask), agree) if ask else None,
    )


@contextmanager
def _recorded(
    folder: str | Path | None, task: Task, policy: PolicyInfo, options: EnvOptions
) -> Iterator[tuple[EpisodeStore, EpisodeWriter]]:
    """The writer of one episode, in a folder that passes where none was named. What breaks inside is its outcome."""
    if folder is None:
        with TemporaryDirectory(prefix="holotron-run-") as passing, _recorded(passing, task, policy, options) as found:
            yield found
        return
    store = EpisodeStore(folder, redact=options.secrets.redact)
    environment = EnvironmentInfo(name="browser", viewport=(options.width, options.height))
    with store.begin(task, policy, environment, episode_id=new_id()) as writer:
        try:
            yield store, writer
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt | asyncio.CancelledError)
            writer.finish(Outcome(reason="stopped" if stopped else "infrastructure", detail=str(error)[:1000]))
            raise


async def _extracted(policy: ChatModel, kind: type[Data], task: str, answer: str, screenshots: Sequence[bytes]) -> Data:
    """The answer as an object: read from it where it is one, else asked for under the class's schema."""
    try:
        return kind.model_validate_json(json_part(answer))
    except ValidationError:
        pass
    fields = ", ".join(kind.model_fields)
    asked = (
        "Somebody did a task on a computer; these are the last screenshots. Give the result as a JSON object with the "
        f"fields {fields}.\nTask: {task}\nAnswer: {answer or '(none)'}"
    )
    messages = [*numbered_screenshots(screenshots), Message("user", asked)]
    reply = await say_once(policy, messages, kind.model_json_schema())
    return kind.model_validate_json(json_part(reply.text))
