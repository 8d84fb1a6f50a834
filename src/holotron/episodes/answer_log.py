"""Answers that were paid for: each is appended and synced before it is used, so that a killed run asks none again."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from holotron.agent.chat import ChatModel, Message, ModelUnavailable, say_once
from holotron.agent.cost import TokenUsage
from holotron.agent.endpoint import EndpointRefused
from holotron.episodes.errors import Damaged
from holotron.episodes.line_log import LineLog

Ask = Callable[[str, Sequence[Message]], Awaitable["PaidAnswer"]]
REFUSED = ("content_filter", "refusal")
_REFUSAL = re.compile(
    r"\W*(i'?m (very )?sorry\b|sorry\b|i apologi[sz]e|(unfortunately,? )?i (can'?t|cannot|won'?t|am not able|'?m unable"
    r"|'?m not able|am unable))",
    re.IGNORECASE,
)
# What another try does not help: a wrong key, no right to the model, no such model.
HOPELESS = (401, 403, 404)


@dataclass(frozen=True)
class PaidAnswer:
    """What a model said to one question. key: the question's name, of which there is one answer in a log."""

    key: str
    text: str
    finish_reason: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    @property
    def refused(self) -> bool:
        """Whether the model said that it would not answer. Ask this only where no answer can be read."""
        return self.finish_reason in REFUSED or bool(_REFUSAL.match(self.text.replace("’", "'")))


class NotAnswered(Exception):
    """Nobody answered: cause is timeout, unavailable or rejected. Nothing was paid; the next run asks again."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause


class AnswerLog:
    """A file of JSON lines, as a context manager; one process may have it open. asked: questions put by this one.

    at_once: questions that wait for their answers, at most; a kill loses the answers to no more than these.
    """

    def __init__(self, path: Path, at_once: int = 16) -> None:
        self.path = path
        self._places = asyncio.Semaphore(at_once)
        self.answers: dict[str, PaidAnswer] = {}
        self.asked = 0
        self._waiting: dict[str, asyncio.Future[PaidAnswer]] = {}
        self._log = LineLog(path)

    def __enter__(self) -> Self:
        for number, line in enumerate(self._log.open(), 1):
            try:
                answer = PaidAnswer(**json.loads(line))
            except (ValueError, TypeError) as error:
                self.__exit__()
                raise Damaged(f"{self.path}:{number} is no answer: {error}") from None
            self.answers[answer.key] = answer
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    def usage(self) -> TokenUsage:
        """Of all answers in the file."""
        total = TokenUsage()
        for each in self.answers.values():
            total += TokenUsage(1, each.prompt_tokens, each.cached_tokens, each.completion_tokens, each.seconds)
        return total

    async def ask(
        self, key: str, model: ChatModel, messages: Sequence[Message], schema: Mapping[str, Any] | None = None
    ) -> PaidAnswer:
        """The answer to a question, asked only where the file has none; NotAnswered where nobody gives one."""
        if key in self.answers:
            return self.answers[key]
        if key not in self._waiting:
            self._waiting[key] = asyncio.ensure_future(self._asked(key, model, messages, schema))
        try:
            return await self._waiting[key]
        finally:
            self._waiting.pop(key, None)

    async def _asked(
        self, key: str, model: ChatModel, messages: Sequence[Message], schema: Mapping[str, Any] | None
    ) -> PaidAnswer:
        async with self._places:
            began = time.monotonic()
            self.asked += 1
            try:
                reply = await say_once(model, messages, schema)
            except ModelUnavailable as error:
                raise NotAnswered("timeout" if "Timeout" in str(error) else "unavailable", str(error)) from error
            except EndpointRefused as error:
                if error.status in HOPELESS:
                    raise
                raise NotAnswered("rejected", str(error)) from error
            answer = PaidAnswer(
                key,
                reply.text,
                reply.finish_reason,
                reply.prompt_tokens or 0,
                reply.cached_tokens or 0,
                reply.completion_tokens or 0,
                round(time.monotonic() - began, 3),
            )
            await asyncio.to_thread(self._append, answer)
            return answer

    def _append(self, answer: PaidAnswer) -> None:
        line = json.dumps(asdict(answer), ensure_ascii=False).encode(errors="replace") + b"\n"
        self._log.append(line)
        self.answers[answer.key] = answer
