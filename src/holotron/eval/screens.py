"""Questions about screens that a small policy has never seen, each in a conversation of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import partial
from typing import Any, Generic, TypeVar

from holotron.agent.baselines import RandomModel
from holotron.agent.chat import ChatModel, ChatOptions, Message, say_once
from holotron.agent.formats.content import find_content
from holotron.agent.formats.taught_size import stretched
from holotron.env.placement import Placement
from holotron.episodes.worker_pool import Share, share_out
from holotron.eval.statistics import wilson
from holotron.suites.screens.generate import DEFAULT_MIX, HELD_OUT_FROM, Tally
from holotron.suites.screens.placing import placed
from holotron.suites.screens.rendering import Shot
from holotron.suites.screens.sources import Sources

Screen = tuple[str, int]  # source, seed
RANDOM = "random"


@dataclass(frozen=True)
class ScreenAnswer:
    """What was said to one question about a screen of that height."""

    source: str
    seed: int
    seconds: float
    height: int = field(default=0, kw_only=True)

    @property
    def right(self) -> bool:
        raise NotImplementedError


A = TypeVar("A", bound=ScreenAnswer)


@dataclass(frozen=True)
class ScreenQuestion(Generic[A]):
    """answer: makes the record from what was said and the seconds it took."""

    asked: str
    answer: Callable[[str, float], A]
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class QuestionKind(Generic[A]):
    """One kind of questions, and how answers to them are counted.

    questions: those of one screen; a function of a module, so that worker processes find it. parts: the names of parts
    that rates are given for besides all and sources, each with what names an answer's part, and with the parts that
    stand first in the report, asked about or not. figures: more than rates of right answers.
    """

    questions: Callable[[Shot, Screen], Iterable[ScreenQuestion[A]]]
    parts: Mapping[str, tuple[Callable[[A], str], Sequence[str]]] = field(default_factory=dict)
    figures: Callable[[Sequence[A]], dict[str, Any]] = lambda _: {}


def evaluate_screens(
    kind: QuestionKind[A],
    model: str,
    screens: int,
    sources: Sequence[str] = tuple(DEFAULT_MIX),
    *,
    device: str | None = None,
    workers: int = 1,
    at_once: int = 4,
    heights: Sequence[int] = (),
) -> dict[str, Any]:
    """Ask about so many screens of each source, and give the shares of right answers.

    heights: each screen is shown once at each, in pixels, the same pixels with white below them.

    The seeds are kept from training; generated pages have templates and themes that are kept, too. model: a checkpoint
    folder, a bundled name, or "random". Screens that cannot be drawn are left out.
    """
    began = time.monotonic()
    todo = [(source, HELD_OUT_FROM + seed) for seed in range(screens) for source in sources]
    tally = Tally(len(todo), "screens")
    with _policy(model, device) as policy:
        work = partial(_ask, kind.questions, at_once, heights)
        shares = asyncio.run(share_out(work, todo, policy, workers=workers, on_report=tally.add))
    answers = sorted((answer for share in shares for answer in share), key=lambda each: (each.source, each.seed))
    parts = {"by_source": ((lambda each: each.source), sources), **kind.parts}
    return {
        "model": model,
        "date": date.today().isoformat(),
        "seconds": time.monotonic() - began,
        "all": _rate(kind, answers),
        **{name: _rates(kind, answers, *part) for name, part in parts.items()},
        "questions": [asdict(each) | {"right": each.right} for each in answers],
    }


@contextmanager
def _policy(model: str, device: str | None) -> Iterator[ChatModel]:
    if model == RANDOM:
        yield RandomModel()
        return
    from holotron.agent.in_process import loaded

    with loaded(model, device, style=ChatOptions(max_tokens=160)) as policy:
        yield policy


async def _ask(
    questions: Callable[[Shot, Screen], Iterable[ScreenQuestion[A]]],
    at_once: int,
    heights: Sequence[int],
    share: Share[Screen],
) -> list[A]:
    """One worker's part."""
    policy = share.model
    assert policy is not None
    async with Sources(held_out=True, at_once=at_once) as sources:
        await sources.prepare(source for source, _ in share.items)

        async def about(screen: Screen) -> list[A]:
            shot = await sources.shot(*screen)
            shots = [] if shot is None else [placed(shot, Placement((shot.width, height))) for height in heights]
            if shot is not None and not heights:
                shots = [shot]
            answers = [
                replace(await _answer(policy, seen, each), height=shown.height)
                for shown in shots
                for seen in [_seen(shown)]
                for each in questions(seen, screen)
            ]
            share.report(screen)
            return answers

        return [answer for answers in await share.each(about, at_once) for answer in answers]


def _seen(shot: Shot) -> Shot:
    """The screen as the agent shows it to a small policy."""
    content = find_content(shot.png)
    # A page that is stretched keeps its points, which are asked for and given in thousandths.
    return replace(shot, png=stretched(shot.png)) if content is None else placed(shot, content.part)


async def _answer(policy: ChatModel, shot: Shot, question: ScreenQuestion[A]) -> A:
    began = time.monotonic()
    reply = await say_once(policy, [Message("user", question.asked, shot.png)], question.schema)
    return question.answer(reply.text, time.monotonic() - began)


def _rates(
    kind: QuestionKind[A], answers: Sequence[A], part_of: Callable[[A], str], first: Sequence[str]
) -> dict[str, Any]:
    groups: dict[str, list[A]] = {name: [] for name in first}
    for each in answers:
        groups.setdefault(part_of(each), []).append(each)
    others = sorted(groups.keys() - set(first), key=lambda name: (-len(groups[name]), name))
    return {name: _rate(kind, groups[name]) for name in (*first, *others)}


def _rate(kind: QuestionKind[A], answers: Sequence[A]) -> dict[str, Any]:
    right = sum(each.right for each in answers)
    return {"right": right, "of": len(answers), "interval": wilson(right, len(answers)), **kind.figures(answers)}


def report_text(found: dict[str, Any]) -> str:
    """The report as a text."""
    lines = [f"{found['model']}: {found['all']['of']} questions in {found['seconds']:.0f} s"]
    for title, rates in found.items():
        if title.startswith("by_"):
            lines.append(title.replace("_", " "))
            lines += [f"  {name:16} {_rate_text(rate)}" for name, rate in rates.items()]
    return "\n".join([*lines, f"  {'all':16} {_rate_text(found['all'])}"])


def _rate_text(rate: dict[str, Any]) -> str:
    if not rate["of"]:
        return "nothing to ask about"
    low, high = rate["interval"]
    text = f"{100 * rate['right'] / rate['of']:5.1f}% ({100 * low:.1f} to {100 * high:.1f}) of {rate['of']}"
    return f"{text}, {100 * rate['characters']:.1f}% of their characters" if "characters" in rate else text
