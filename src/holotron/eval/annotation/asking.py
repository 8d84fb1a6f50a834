"""The two who are asked: a model that names, points and describes, and a judge that says whether it is right."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from holotron.actions.action import ActionError
from holotron.agent.chat import ChatModel, Message
from holotron.agent.formats.localizers import JsonLocalizer, Localizer
from holotron.episodes.answer_log import AnswerLog, NotAnswered, PaidAnswer
from holotron.episodes.labels import PixelBox, Provenance, State
from holotron.eval.annotation.questions import read_yes
from holotron.eval.judges import Evidence, Judge, WebJudge
from holotron.eval.judging import decide

T = TypeVar("T")


class Standing(NamedTuple):
    """What becomes of a label: its state, why it is not accepted, and who spoke."""

    state: State
    reason: str = ""
    sources: tuple[Provenance, ...] = ()


EXACT = Standing("accepted", "", (Provenance(source="dom"),))


@dataclass(frozen=True)
class Speaker:
    """A model that is asked, under the name that its labels keep, and the file of its answers."""

    model: ChatModel
    name: str
    log: AnswerLog


@dataclass
class Annotators:
    """Whom a run asks. Either may be missing: then what it would have said is left to a person.

    votes: how often a point or a judgement is asked for; most of them count. problems: what could not be used, by its
    kind: timeouts and the like, refusals, and answers that cannot be read.
    """

    policy: Speaker | None = None
    judge: Speaker | None = None
    localizer: Localizer = field(default_factory=JsonLocalizer)
    method: Judge = field(default_factory=WebJudge)
    votes: int = 1
    problems: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    async def ask(
        self, key: str, messages: Sequence[Message], read: Callable[[str], T], schema: Mapping[str, Any] | None = None
    ) -> T | None:
        """What is read from the model's answer; None where there is none: the next run asks again if none came."""
        if self.policy is None:
            return None
        try:
            answer = await self.policy.log.ask(key, self.policy.model, messages, schema)
        except NotAnswered as error:
            self.problem(error.cause, str(error))
            return None
        try:
            return read(answer.text)
        except ActionError as error:
            self._unreadable(answer, str(error))
            return None

    def said(self, *keys: str) -> Provenance:
        """The model, with the keys of its answers."""
        return Provenance(source="model", name=self.policy.name if self.policy else "", answers=keys)

    async def point(self, screen: str, size: tuple[int, int], png: bytes, text: str, box: PixelBox) -> Standing:
        """Whether the model, asked where that is, points into the box."""
        if self.policy is None:
            return Standing("review", "nobody was asked where it is")
        keys = [f"{screen} point {_short(text)} {number}" for number in range(self.votes)]
        question, schema = self.localizer.messages(text, png, size), self.localizer.schema()

        def inside(answer: str) -> bool:
            x, y = self.localizer.shares(answer, size)
            return box[0] <= x * size[0] <= box[2] and box[1] <= y * size[1] <= box[3]

        votes = await asyncio.gather(*(self.ask(key, question, inside, schema) for key in keys))
        outside = f"{votes.count(False)} of {len(votes) - votes.count(None)} points are outside the box"
        told = Provenance(source="point", name=self.policy.name, answers=tuple(keys))
        return _most(votes, told, "no point could be read", outside)

    async def check(self, key: str, question: Sequence[Message]) -> Standing:
        """Whether the judge says YES."""
        if self.judge is None:
            return Standing("review", "nobody judged it")
        judge, keys = self.judge, [f"{key} {number}" for number in range(self.votes)]
        try:
            answers = await asyncio.gather(*(judge.log.ask(each, judge.model, question) for each in keys))
        except NotAnswered as error:
            self.problem(error.cause, str(error))
            return Standing("review", error.cause)
        votes = [read_yes(answer.text) for answer in answers]
        for answer, vote in zip(answers, votes, strict=True):
            if vote is None:
                self._unreadable(answer, "neither YES nor NO")
        told = Provenance(source="judge", name=judge.name, answers=tuple(keys))
        return _most(votes, told, "no judgement could be read", "the judge says no")

    async def opinion(self, key: str, seen: Evidence) -> tuple[str, str]:
        """Whether the judge says that the task was accomplished: success, failure or undecided, and its cause."""
        if self.judge is None:
            return "undecided", "nobody judged it"
        judge = self.judge

        async def ask(question: str, messages: Sequence[Message]) -> PaidAnswer:
            return await judge.log.ask(f"{key} {_short(seen.task)} {question}", judge.model, messages)

        try:
            return decide(await self.method.votes(seen, self.votes, ask))
        except NotAnswered as error:
            self.problem(error.cause, str(error))
            return "undecided", error.cause

    def judged(self, agrees: bool) -> Provenance:
        return Provenance(source="judge", name=self.judge.name if self.judge else "", agrees=agrees)

    def _unreadable(self, answer: PaidAnswer, detail: str) -> None:
        self.problem("refusal" if answer.refused else "malformed", f"{answer.key}: {detail}")

    def problem(self, kind: str, detail: str) -> None:
        self.problems[kind] += 1
        self.examples.setdefault(kind, detail[:300])


def _most(votes: Sequence[bool | None], told: Provenance, unread: str, against: str) -> Standing:
    """What most votes that could be read say. unread, against: the reasons where that is no acceptance."""
    read = [vote for vote in votes if vote is not None]
    if not read:
        return Standing("review", unread)
    if 2 * sum(read) > len(read):
        return Standing("accepted", "", (told,))
    return Standing("review", against, (told.model_copy(update={"agrees": False}),))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
