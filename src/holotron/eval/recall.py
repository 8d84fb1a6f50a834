"""How far back a policy remembers what it saw: a code is shown at step 3 and asked for at step n, on real pages.

A model whose memory is a state of fixed size may forget where one that keeps every token does not. The model's
`ChatOptions.keep_images` says which memory is measured: None leaves every screenshot in the context, a small number
leaves only what the state carried on. Two controls stand beside each figure: "visible" repeats the code on the page
that asks, which needs reading alone, and "absent" never shows it, which only guessing answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holotron.agent.agent import Ending, StepRecord
from holotron.agent.chat import Chat, ChatModel, Message, Reply
from holotron.agent.prompts import POINT_SCHEMA
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.errors import EnvError, InfrastructureError
from holotron.env.safety.policy import SafetyPolicy
from holotron.env.task import Task
from holotron.episodes.fleet import Counters, Fleet, Record
from holotron.episodes.record import EnvironmentInfo, ModelOutput, PolicyInfo
from holotron.episodes.store import EpisodeStore, id_of
from holotron.eval.evaluate import keep_manifest
from holotron.eval.recall_pages import CONDITIONS, SHOWN_AT, Condition, RecallTrial, make_trial
from holotron.eval.recall_report import RecallReport, RecallResult
from holotron.suites.plain.suite import served

DISTANCES = (5, 10, 20, 30, 40, 50)
ATTEMPTS = 3
SUITE = "recall"  # the name its episodes have
SYSTEM = (
    "You look through the pages of an office. At each step you see a screenshot and click somewhere, which leads to "
    "the next page: answer with JSON, points from 0 to 1000 of the screenshot's width and height: "
    '{"action":"click","x":…,"y":…}. Remember the pages: in the end one of them asks about an earlier one. Answer that '
    'with JSON: {"answer":"…"}.'
)
# Room for a point and for nothing else: what is remembered must not be what was written down.
CLICK_SCHEMA: dict[str, Any] = POINT_SCHEMA | {
    "properties": {"action": {"const": "click"}, **POINT_SCHEMA["properties"]},
    "required": ["action", *POINT_SCHEMA["required"]],
}
ANSWER_SCHEMA: dict[str, Any] = POINT_SCHEMA | {
    "properties": {"answer": {"type": "string", "maxLength": 80}},
    "required": ["answer"],
}


async def run_recall(
    model: ChatModel,
    browsers: Browsers,
    *,
    distances: Sequence[int] = DISTANCES,
    trials: int = 8,
    seed: int = 0,
    size: tuple[int, int] = (800, 600),
    conditions: Sequence[Condition] = CONDITIONS,
    sessions: int = 4,
    folder: str | Path | None = None,
    on_change: Callable[[Counters], None] = lambda _: None,
) -> RecallReport:
    """Play all trials, so many sessions at once.

    With a folder the trials are kept there as episodes, and a run with the same model, seed and size goes on where one
    was broken off. A browser or a model that fails costs another attempt, and after three an InfrastructureError: a
    context that does not hold n screenshots is one such case.
    """
    plan = [make_trial(kind, n, number, seed) for n in distances for number in range(trials) for kind in conditions]
    by_name = {trial.name: trial for trial in plan}
    chat = await model.open()  # only now does a model behind an address know its name
    await chat.close()
    with ExitStack() as stack:
        out, pages = (Path(stack.enter_context(TemporaryDirectory())) for _ in range(2))
        if folder is not None:
            out = Path(folder)
        settings = {"model": model.name, "seed": seed, "size": list(size), "shown_at": SHOWN_AT}
        keep_manifest(out, {"suite": SUITE, **settings})
        store, origin = EpisodeStore(out), stack.enter_context(served(pages))
        options = EnvOptions(width=size[0], height=size[1], safety=SafetyPolicy([origin]))

        @asynccontextmanager
        async def begin(task: Task) -> AsyncIterator[_Walk]:
            trial = by_name[task.name or ""]
            (pages / trial.name).mkdir(parents=True, exist_ok=True)
            for step, page in enumerate(trial.pages, 1):
                (pages / trial.name / f"{step}.html").write_text(page.html, encoding="utf-8")
            async with await BrowserEnv.open(browsers, options) as env:
                yield _Walk(task, trial, f"{origin}/{trial.name}", env, model)

        def told(counters: Counters) -> None:
            on_change(counters)
            if counters.infrastructure:  # without this trial the report would not be whole
                raise InfrastructureError(_failure(store))

        tasks = {
            trial.name: Task(text=f"Find the code of “{trial.title}”.", benchmark=SUITE, name=trial.name, seed=seed)
            for trial in plan
        }
        policy, where = PolicyInfo(model=model.name), EnvironmentInfo(name="browser", viewport=size)
        fleet = Fleet(store, begin, policy, where, sessions=sessions, retries=ATTEMPTS - 1, on_change=told)
        await fleet.run(tasks.values())
        played = {name: [step.output for step in store.steps(id_of(task.key))] for name, task in tasks.items()}
    results = (judge(trial, [output for output in played[trial.name] if output]) for trial in plan)
    return RecallReport(model.name, seed, size, tuple(results))


@dataclass
class _Walk:
    """One trial in a browser of its own: every step sees the next page, wherever the policy clicks."""

    task: Task
    trial: RecallTrial
    address: str
    env: BrowserEnv
    model: ChatModel

    async def play(self, record: Record) -> Ending:
        chat, replies = await self.model.open(), list[Reply]()
        try:
            for index in range(self.trial.asked_at):
                step = await self._step(chat, index)
                await record(step)
                replies += [step.reply] if step.reply else []
        except EnvError as error:  # pages of our own that do not open are never the policy's fault
            raise InfrastructureError(str(error)) from error
        finally:
            await chat.close()
        result = judge(self.trial, replies)
        return Ending("answered", result.answer, success=result.right, reward=float(result.right))

    async def _step(self, chat: Chat, index: int) -> StepRecord:
        last = index == self.trial.asked_at - 1
        await self.env.goto(f"{self.address}/{index + 1}.html")
        seen = await self.env.observe()
        text = f"Step {index + 1}. " + ("The page asks a question: answer it." if last else "Go on to the next page.")
        question = Message("user", text, seen.image)
        messages = [question] if index else [Message("system", SYSTEM), question]
        return StepRecord(index, seen, await chat.say(messages, ANSWER_SCHEMA if last else CLICK_SCHEMA), forced=last)


def _failure(store: EpisodeStore) -> str:
    """Why a trial was given up, as its last attempt tells."""
    for info in store.list_episodes(benchmark=SUITE, finished=True):
        if info.outcome is not None and info.outcome.reason == "infrastructure":
            return f"the trial {info.task.name} failed {ATTEMPTS} times: {info.outcome.detail}"
    return f"a trial failed {ATTEMPTS} times: no browser could be opened"


def judge(trial: RecallTrial, replies: Sequence[Reply | ModelOutput]) -> RecallResult:
    """What became of a trial, from the replies at all its steps."""
    answer = answer_in(replies[-1].text)
    return RecallResult(
        trial.condition,
        trial.asked_at,
        answer[:500],
        right=names_code(answer, trial.code) and not any(names_code(answer, other) for other in trial.others),
        noted=any(names_code(reply.text, trial.code) for reply in replies[:-1]),
        prompt_tokens=tuple(reply.prompt_tokens for reply in replies),
        cached_tokens=tuple(reply.cached_tokens for reply in replies),
    )


def answer_in(text: str) -> str:
    """What a reply gives as the answer: the field of that name, or all of it if it is no such JSON."""
    start, end = text.rfind("{"), text.rfind("}")
    try:
        value = json.loads(text[start : end + 1])["answer"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return text
    return value if isinstance(value, str) else text


def names_code(text: str, code: str) -> bool:
    """Whether a text contains the code; anything but letters and digits may stand between its two parts."""
    digits, word = code.split()
    return re.search(rf"(?<!\d){digits}[^0-9a-z]*{word}(?![a-z])", text.lower()) is not None
