"""Episodes judged by a model: every answer is kept before it is used, and no episode is judged twice.

calls.jsonl      what the judge said, each answer appended and synced as it comes
verdicts.jsonl   the verdict on each episode; made anew from the answers
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holotron.actions.action import Answer, Infeasible
from holotron.actions.describe import describe
from holotron.agent.chat import ChatModel, Message
from holotron.agent.cost import PriceTable
from holotron.episodes.answer_log import AnswerLog, NotAnswered, PaidAnswer
from holotron.episodes.errors import Damaged
from holotron.episodes.files import write_whole
from holotron.episodes.record import EpisodeInfo, Step
from holotron.episodes.store import EpisodeStore
from holotron.eval.judges import Evidence, Judge, Opinion, Vote
from holotron.suites.barriers import barrier_by_place, barrier_in

CALLS, VERDICTS = "calls.jsonl", "verdicts.jsonl"


@dataclass(frozen=True)
class Verdict:
    """What became of an episode. cause: of an undecided one why, or "captcha" or "blocked": nobody was asked then."""

    episode: str
    task: str
    attempt: int
    opinion: Opinion
    cause: str = ""
    votes: tuple[str, ...] = ()
    unread_scores: int = 0
    words: str = ""

    @property
    def reward(self) -> float | None:
        """None where there is no verdict."""
        return None if self.opinion == "undecided" else float(self.opinion == "success")


def barrier_of(steps: Sequence[Step], detail: str = "") -> str:
    """What the last page was if it kept the agent out: "captcha", "blocked", or "". detail: the outcome's."""
    if not steps:
        return ""
    seen = steps[-1].observation
    told = "" if detail == answer_of(steps) else barrier_in(detail)  # what the policy says of it is no proof
    return barrier_by_place(seen.title, seen.url) or told


def answer_of(steps: Sequence[Step]) -> str | None:
    """What the policy answered, in its last step."""
    action = steps[-1].action.parse() if steps and steps[-1].action is not None else None
    return action.text if isinstance(action, Answer) else None


def factual_actions(steps: Sequence[Step]) -> tuple[str, ...]:
    """What was done, in words; what the policy says of it, its answer included, is left out."""
    done = ((step, step.action.parse()) for step in steps if step.action is not None)
    return tuple(
        describe(action) + (" (it failed)" if not step.result.ok else "")
        for step, action in done
        if not isinstance(action, Answer | Infeasible)
    )


def evidence_of(store: EpisodeStore, info: EpisodeInfo, steps: Sequence[Step], task: str | None = None) -> Evidence:
    """What a judge may see of an episode; task: another one than it was played for."""
    images = tuple(step.observation.image for step in steps if step.observation.image is not None)
    return Evidence(info.id, task or info.task.text, answer_of(steps), factual_actions(steps), images, store.image)


@dataclass
class Judging:
    """The episodes of a store before a judge. at_once: how many of them, and of questions that wait for an answer."""

    store: EpisodeStore
    judge: Judge
    model: ChatModel
    folder: Path
    votes: int = 1
    at_once: int = 16
    on_change: Callable[[int, int], None] = lambda *_: None
    asked: int = field(default=0, init=False)

    async def run(self, episodes: Sequence[EpisodeInfo]) -> list[Verdict]:
        """A verdict for each, in their order."""
        places, done = asyncio.Semaphore(self.at_once), 0
        with AnswerLog(self.folder / CALLS, self.at_once) as log:

            async def one(info: EpisodeInfo) -> Verdict:
                nonlocal done
                async with places:
                    verdict = await self._verdict(info, log)
                done += 1
                self.on_change(done, len(episodes))
                return verdict

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(info)) for info in episodes]
            self.asked = log.asked
        verdicts = [task.result() for task in tasks]
        lines = "".join(json.dumps(asdict(verdict), ensure_ascii=False) + "\n" for verdict in verdicts)
        write_whole(self.folder / VERDICTS, lines.encode(errors="replace"), sync=True)
        return verdicts

    async def _verdict(self, info: EpisodeInfo, log: AnswerLog) -> Verdict:
        task, attempt = info.task.name or info.task.text, info.task.seed or 0
        try:
            steps = await asyncio.to_thread(lambda: list(self.store.steps(info.id)))
        except Damaged as error:
            return Verdict(info.id, task, attempt, "undecided", "damaged", words=str(error))
        if barrier := barrier_of(steps, info.outcome.detail if info.outcome else ""):
            return Verdict(info.id, task, attempt, "undecided", barrier)
        seen = evidence_of(self.store, info, steps)

        async def ask(question: str, messages: Sequence[Message]) -> PaidAnswer:
            return await log.ask(f"{info.id} {question}", self.model, messages)

        given = self.judge.without_asking(seen)
        try:
            votes = [given] if given is not None else await self.judge.votes(seen, self.votes, ask)
        except NotAnswered as error:
            votes = [Vote("undecided", error.cause, str(error))]
        opinion, cause = decide(votes)
        shown = next((vote for vote in votes if vote.opinion == opinion), votes[0])
        return Verdict(
            info.id,
            task,
            attempt,
            opinion,
            cause,
            tuple(vote.opinion if vote.opinion != "undecided" else vote.cause for vote in votes),
            max(vote.unread for vote in votes),
            shown.words[-1000:],
        )

    def cost(self, name: str, prices: PriceTable | None) -> dict[str, Any]:
        """Of all answers so far: their number, tokens and seconds, and money where the table has the judge's price."""
        with AnswerLog(self.folder / CALLS) as log:
            usage = log.usage()
        price = None if prices is None else prices.find(name)
        money = None if price is None else round(usage.money(price), 6)
        told = asdict(usage)
        return {"calls": told.pop("steps"), **told, "cost": money, "currency": prices.currency if prices else None}


def decide(votes: Sequence[Vote]) -> tuple[Opinion, str]:
    """The opinion of most who have one, and its cause; undecided where none has one or as many say the other."""
    count = Counter(vote.opinion for vote in votes if vote.opinion != "undecided")
    if not count:
        return "undecided", votes[0].cause
    if count["success"] == count["failure"]:
        return "undecided", "split"
    opinion: Opinion = "success" if count["success"] > count["failure"] else "failure"
    return opinion, next(vote.cause for vote in votes if vote.opinion == opinion)
