"""Judges of episodes on live sites: how each is asked, and how its words are read. What cannot be read is no verdict.

webvoyager    one question: the task, the answer and the last screenshots; SUCCESS or NOT SUCCESS
webjudge      three steps: the task's key points, a score of 1 to 5 for every screenshot, then the verdict from the key
              points, the actions and the screenshots of 3 and more; it is not told the answer
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from holotron.agent.chat import Message, numbered_screenshots
from holotron.episodes.answer_log import Ask, PaidAnswer

Opinion = Literal["success", "failure", "undecided"]


@dataclass(frozen=True)
class Evidence:
    """What a judge may be shown of an episode. answer: None where the policy gave none. image: a screenshot's bytes."""

    episode: str
    task: str
    answer: str | None
    actions: tuple[str, ...]
    screenshots: tuple[str, ...]
    image: Callable[[str], bytes]


@dataclass(frozen=True)
class Vote:
    """One verdict. cause: why there is none, or why nobody was asked for it. unread: scores that could not be read."""

    opinion: Opinion
    cause: str = ""
    words: str = ""
    unread: int = 0


class Judge(Protocol):
    """A way to judge. votes: how often the last question is asked."""

    name: ClassVar[str]

    @property
    def settings(self) -> dict[str, int]: ...

    def without_asking(self, seen: Evidence) -> Vote | None:
        """The verdict on what needs no judge."""
        ...

    async def votes(self, seen: Evidence, count: int, ask: Ask) -> list[Vote]: ...


def unreadable(answer: PaidAnswer) -> Vote:
    return Vote("undecided", "refusal" if answer.refused else "malformed", answer.text)


# ---- WebVoyager ----

WEBVOYAGER_SYSTEM = """You evaluate whether a task on the web was accomplished. You are given:
1. The instruction: what was to be done on a web site.
2. Screenshots of the last pages that were seen while it was done.
3. The response: the text that was given as a result.

Do not visit any site and do not act. Do not assume anything that neither the screenshots nor the response show. Where \
the instruction has several parts, all of them must be accomplished. The screenshots are genuine; the response was \
written by a model at the end. Where it contradicts a screenshot, believe the screenshot; where it says something that \
no screenshot shows, believe the response.

Explain first how you come to your verdict. Then end with the verdict itself: SUCCESS or NOT SUCCESS."""


@dataclass(frozen=True)
class WebVoyagerJudge:
    """images: how many of the last screenshots are shown. Who gave no answer failed, as the benchmark has it."""

    images: int = 15
    name: ClassVar[str] = "webvoyager"

    @property
    def settings(self) -> dict[str, int]:
        return {"images": self.images}

    def without_asking(self, seen: Evidence) -> Vote | None:
        return None if seen.answer is not None else Vote("failure", "no answer")

    async def votes(self, seen: Evidence, count: int, ask: Ask) -> list[Vote]:
        shown = seen.screenshots[-self.images :]
        said = f"Instruction: {seen.task}\nResponse: {seen.answer}\nThe last {len(shown)} screenshots follow."
        messages = [
            Message("system", WEBVOYAGER_SYSTEM),
            Message("user", said),
            *numbered_screenshots([seen.image(digest) for digest in shown]),
            Message("user", "Your verdict?"),
        ]
        return [read_success(answer) for answer in await _asked(ask, messages, count)]


def read_success(answer: PaidAnswer) -> Vote:
    """NOT SUCCESS anywhere is a failure, else SUCCESS a success, as the published evaluation reads it."""
    if "NOT SUCCESS" in answer.text:
        return Vote("failure", words=answer.text)
    if re.search(r"(?<![A-Za-z])SUCCESS", answer.text):
        return Vote("success", words=answer.text)
    if re.search(r"\bUNKNOWN\b", answer.text):
        return Vote("undecided", "unknown", answer.text)
    return unreadable(answer)


# ---- WebJudge ----

KEY_POINTS_SYSTEM = """You analyse tasks on the web. From the task's description alone, list its key points: every \
requirement that it states explicitly and that must be met for it to be accomplished. Infer nothing that it does not \
say. Words such as best, highest, cheapest, latest, most recent, lowest, closest, highest-rated, largest and newest \
ask for a sort or a filter: each is a key point. Answer with

Key Points:
1. …
2. …"""

SCORE_SYSTEM = """You decide whether a screenshot is evidence of how a task on the web was accomplished: whether it \
shows a necessary step, or something that matters for one of the task's key points, such as an applied filter, an \
entered value or a result. Describe what it shows that bears on the task, then give a score:
1: nothing that matters. 2: little, or unclear. 3: some evidence. 4: an important step. 5: plain evidence of a key \
point. Answer with

Reasoning: …
Score: 1, 2, 3, 4 or 5"""

VERDICT_SYSTEM = """You evaluate an agent that was given a task on a web site. You see the task, its key points, the \
actions that were taken, and screenshots that may matter. Decide whether the task was accomplished, by these rules:
1. A filter or a sort that the task asks for must have been applied and confirmed: typed or chosen without being \
submitted does not count. Where the site has a control for it, a search phrase is no substitute.
2. Numbers such as ranges of prices, dates or ratings must be exactly those of the task, neither wider nor narrower.
3. What the task wants submitted, added, saved or shown must have been so, and the last page must fit the result.
4. Filters that contradict the task, or results that do not meet it, are a failure, also where the rest is right.
5. If nothing fits the task and the agent looked correctly, it is accomplished.
6. Loops, steps that were not needed and steps that were undone are no failure.
7. What is neither in the actions nor in a screenshot did not happen.
Answer with

Thoughts: …
Status: success or failure"""

_SCORE = re.compile(r"score\W{0,12}([1-5])\b", re.IGNORECASE)
_STATUS = re.compile(r"status\W{0,12}(success|failure)\b", re.IGNORECASE)


@dataclass(frozen=True)
class WebJudge:
    """threshold: the least score of a screenshot that is kept; images: the most that are shown, the first ones."""

    threshold: int = 3
    images: int = 50
    name: ClassVar[str] = "webjudge"

    @property
    def settings(self) -> dict[str, int]:
        return {"threshold": self.threshold, "images": self.images}

    def without_asking(self, seen: Evidence) -> Vote | None:
        return None

    async def votes(self, seen: Evidence, count: int, ask: Ask) -> list[Vote]:
        told = await ask("key points", [Message("system", KEY_POINTS_SYSTEM), Message("user", f"Task: {seen.task}")])
        points = read_key_points(told)
        if points is None:
            return [unreadable(told)]
        # The same screenshot may come again, step after step: it is scored once.
        distinct = list(dict.fromkeys(seen.screenshots))
        replies = await asyncio.gather(*(self._score(seen, points, each, ask) for each in distinct))
        scores = {digest: read_score(reply) for digest, reply in zip(distinct, replies, strict=True)}
        kept = [each for each in seen.screenshots if scores[each][0] >= self.threshold][: self.images]
        actions = _numbered(seen.actions)
        reasons = _numbered([scores[each][1] for each in kept])
        said = f"Task: {seen.task}\n\nKey points:\n{points}\n\nActions:\n{actions}\n\nScreenshots:\n{reasons}"
        shown = numbered_screenshots([seen.image(digest) for digest in kept])
        messages = [Message("system", VERDICT_SYSTEM), Message("user", said), *shown]
        unread = sum(score == 0 for score, _ in scores.values())
        return [read_status(answer, unread) for answer in await _asked(ask, messages, count)]

    async def _score(self, seen: Evidence, points: str, digest: str, ask: Ask) -> PaidAnswer:
        said = f"Task: {seen.task}\n\nKey points:\n{points}\n\nThe screenshot:"
        picture = Message("user", said, seen.image(digest), image_first=False)
        return await ask(f"score {digest}", [Message("system", SCORE_SYSTEM), picture])


def read_score(answer: PaidAnswer) -> tuple[int, str]:
    """The score and the reason for it; 0 where none can be read: such a screenshot is not kept, and counted."""
    found = list(_SCORE.finditer(answer.text))
    if not found:
        return 0, ""
    reason = answer.text[: found[-1].start()].strip("#* \n").removeprefix("Reasoning")
    return int(found[-1][1]), " ".join(reason.strip(":* \n").split())


def read_key_points(answer: PaidAnswer) -> str | None:
    """What stands below the heading; None where there is no list."""
    _, heading, below = answer.text.partition("Key Points")
    text = (below.lstrip("*: \n") if heading else answer.text).strip()
    return text if re.search(r"^\W*(\d+[.)]|[-*•])\s*\S", text, re.MULTILINE) else None


def read_status(answer: PaidAnswer, unread: int = 0) -> Vote:
    """Success or failure where all statuses in the text are the same."""
    found = {status.lower() for status in _STATUS.findall(answer.text)}
    if len(found) != 1:
        vote = unreadable(answer)
        return Vote(vote.opinion, vote.cause, vote.words, unread)
    return Vote("success" if found == {"success"} else "failure", words=answer.text, unread=unread)


# ---- both ----


async def _asked(ask: Ask, messages: Sequence[Message], count: int) -> list[PaidAnswer]:
    return list(await asyncio.gather(*(ask(f"verdict {number}", messages) for number in range(count))))


def _numbered(lines: Sequence[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1)) or "None"


def find_judge(name: str, images: int | None = None) -> Judge:
    """A judge by its name. ValueError where there is none."""
    known: dict[str, type[WebVoyagerJudge] | type[WebJudge]] = {"webvoyager": WebVoyagerJudge, "webjudge": WebJudge}
    if name not in known:
        raise ValueError(f"there is no judge {name!r}; choose one of {', '.join(known)}")
    return known[name]() if images is None else known[name](images=images)
