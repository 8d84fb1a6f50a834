"""How far back a policy remembers what it saw: a code is shown at step 3 and asked for at step n, on real pages.

A model whose memory is a state of fixed size may forget where one that keeps every token does not. Which memory is
measured is up to the model's `Style.keep_images`: None leaves every screenshot in the context, a small number leaves
only what the state carried on. Two controls stand beside each figure: "visible" repeats the code on the page that asks,
which needs reading alone, and "absent" never shows it, which only guessing answers.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from holotron.agent.chat import Chat, ChatModel, Message, Reply
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.errors import EnvError, InfrastructureError
from holotron.env.safety.policy import SafetyPolicy
from holotron.episodes.fleet import first_error
from holotron.eval.recall_pages import CONDITIONS, SHOWN_AT, Condition, PageServer, RecallTrial, make_trial
from holotron.eval.recall_report import RecallReport, RecallResult, TrialLog

DISTANCES = (5, 10, 20, 30, 40, 50)
ATTEMPTS = 3
SYSTEM = (
    "You look through the pages of an office. At each step you see a screenshot and click somewhere, which leads to "
    "the next page: answer with JSON, points from 0 to 1000 of the screenshot's width and height: "
    '{"action":"click","x":…,"y":…}. Remember the pages: in the end one of them asks about an earlier one. Answer that '
    'with JSON: {"answer":"…"}.'
)
# Room for a point and for nothing else: what is remembered must not be what was written down.
CLICK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"const": "click"},
        "x": {"type": "integer", "minimum": 0, "maximum": 1000},
        "y": {"type": "integer", "minimum": 0, "maximum": 1000},
    },
    "required": ["action", "x", "y"],
    "additionalProperties": False,
}
ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 80}},
    "required": ["answer"],
    "additionalProperties": False,
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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> RecallReport:
    """Play all trials, so many sessions at once; `progress` is told steps done and steps in all.

    With a folder each finished trial is kept there, and a run with the same model, seed and size goes on where one was
    broken off. ModelUnavailable passes through: a context that does not hold n screenshots is one such case. A browser
    that fails costs another attempt, and after three an InfrastructureError.
    """
    if sessions < 1:
        raise ValueError(f"{sessions} sessions are too few; at least 1 is needed")
    plan = [make_trial(kind, n, number, seed) for n in distances for number in range(trials) for kind in conditions]
    chat = await model.open()  # only now does a model behind an address know its name
    await chat.close()
    settings = {"benchmark": "recall", "model": model.name, "seed": seed, "size": list(size), "shown_at": SHOWN_AT}
    log = TrialLog(None if folder is None else Path(folder), settings)
    todo = iter([trial for trial in plan if trial.key not in log.results])
    done, total = sum(trial.asked_at for trial in plan if trial.key in log.results), sum(t.asked_at for t in plan)
    progress(done, total)

    def stepped(steps: int = 1) -> None:
        nonlocal done
        done += steps
        progress(done, total)

    with PageServer() as server:
        options = EnvOptions(width=size[0], height=size[1], safety=SafetyPolicy([server.origin]))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(sessions, len(plan))):
                    group.create_task(_work(todo, model, browsers, options, server, log, stepped))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors
    results = tuple(log.results[trial.key] for trial in plan)
    return RecallReport(model.name, seed, size, results)


async def _work(
    todo: Iterator[RecallTrial],
    model: ChatModel,
    browsers: Browsers,
    options: EnvOptions,
    server: PageServer,
    log: TrialLog,
    stepped: Callable[[int], None],
) -> None:
    for trial in todo:
        addresses = [server.put(f"/{trial.key}/{step}", page.html) for step, page in enumerate(trial.pages, 1)]
        for attempt in range(1, ATTEMPTS + 1):
            looked = 0
            try:
                async with await BrowserEnv.open(browsers, options) as env:
                    chat = await model.open()
                    try:
                        replies = []
                        for step, address in enumerate(addresses, 1):
                            replies.append(await _step(env, chat, step, address, step == trial.asked_at))
                            looked += 1
                            stepped(1)
                    finally:
                        await chat.close()
                break
            except EnvError as error:
                stepped(-looked)
                if attempt == ATTEMPTS:
                    raise InfrastructureError(f"the trial {trial.key} failed {ATTEMPTS} times: {error}") from error
        log.add(_result(trial, replies))


async def _step(env: BrowserEnv, chat: Chat, step: int, address: str, last: bool) -> Reply:
    await env.goto(address)
    seen = await env.observe()
    text = f"Step {step}. " + ("The page asks a question: answer it." if last else "Go on to the next page.")
    question = Message("user", text, seen.image)
    return await chat.say(
        [question] if step > 1 else [Message("system", SYSTEM), question], ANSWER_SCHEMA if last else CLICK_SCHEMA
    )


def _result(trial: RecallTrial, replies: list[Reply]) -> RecallResult:
    answer = answer_in(replies[-1].text)
    return RecallResult(
        condition=trial.condition,
        asked_at=trial.asked_at,
        number=trial.number,
        code=trial.code,
        answer=answer[:500],
        right=names_code(answer, trial.code) and not any(names_code(answer, other) for other in trial.others),
        noted=any(names_code(reply.text, trial.code) for reply in replies[:-1]),
        prompt_tokens=[reply.prompt_tokens for reply in replies],
        cached_tokens=[reply.cached_tokens for reply in replies],
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
    """Whether a text contains the code, whatever stands between its digits and its word."""
    digits, word = code.split()
    return re.search(rf"(?<!\d){digits}[^0-9a-z]*{word}(?![a-z])", text.lower()) is not None
