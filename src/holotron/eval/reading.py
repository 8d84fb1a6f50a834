"""What a small policy reads at a place of a screen it has never seen.

An answer is right if it is the text, letter for letter.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from holotron.agent.chat import ChatModel
from holotron.eval.screens import Screen, answer, ask_screens, held_out
from holotron.eval.statistics import wilson
from holotron.suites.screens.labels import LONGEST
from holotron.suites.screens.questions import READ, point_text
from holotron.suites.screens.rendering import Shot
from holotron.suites.screens.sources import SOURCES

QUESTIONS = 3  # of one screen


@dataclass(frozen=True)
class ReadOut:
    source: str
    seed: int
    text: str
    answer: str
    seconds: float

    @property
    def right(self) -> bool:
        return self.answer == self.text

    @property
    def wrong(self) -> int:
        """Characters to add, take away or change to get the text, at most as many as it has."""
        return min(len(self.text), distance(self.answer, self.text))


def distance(one: str, other: str) -> int:
    """Characters to add, take away or change to make one text the other."""
    before = list(range(len(other) + 1))
    for row, character in enumerate(one, 1):
        here = [row]
        for column, wanted in enumerate(other, 1):
            here.append(min(before[column] + 1, here[-1] + 1, before[column - 1] + (character != wanted)))
        before = here
    return before[-1]


async def _questions(shot: Shot, screen: Screen, policy: ChatModel) -> list[ReadOut]:
    source, seed = screen
    readable = [each for each in shot.elements if each.usable and 0 < len(each.text) <= LONGEST]
    random.Random(f"reading/{source}/{seed}").shuffle(readable)
    answers: list[ReadOut] = []
    for element in readable[:QUESTIONS]:
        said, seconds = await answer(policy, READ + point_text(shot, element.middle), shot.png)
        answers.append(ReadOut(source, seed, element.text, said.strip(), seconds))
    return answers


def reading(
    model: str,
    screens: int,
    sources: Sequence[str] = SOURCES,
    *,
    device: str | None = None,
    workers: int = 1,
    at_once: int = 4,
) -> dict[str, Any]:
    """`screens` of each source; shares of texts and of characters that were read rightly, over all and by source."""
    began = time.monotonic()
    read = ask_screens(_questions, held_out(screens, sources), model, device=device, workers=workers, at_once=at_once)
    read.sort(key=lambda each: (each.source, each.seed, each.text))
    return {
        "model": model,
        "date": date.today().isoformat(),
        "seconds": time.monotonic() - began,
        "all": _rate(read),
        "by_source": {source: _rate([each for each in read if each.source == source]) for source in sources},
        "questions": [asdict(each) | {"right": each.right} for each in read],
    }


def _rate(read: Sequence[ReadOut]) -> dict[str, Any]:
    right, characters = sum(each.right for each in read), sum(len(each.text) for each in read)
    told = 1 - sum(each.wrong for each in read) / characters if characters else None
    return {"right": right, "of": len(read), "interval": wilson(right, len(read)), "characters": told}


def told(found: dict[str, Any]) -> str:
    """The report as a text."""
    lines = [f"{found['model']}: {found['all']['of']} texts in {found['seconds']:.0f} s"]
    lines += [f"  {name:16} {_told(rate)}" for name, rate in [*found["by_source"].items(), ("all", found["all"])]]
    return "\n".join(lines)


def _told(rate: dict[str, Any]) -> str:
    if not rate["of"]:
        return "nothing to read"
    low, high = rate["interval"]
    share = f"{100 * rate['right'] / rate['of']:5.1f}% ({100 * low:.1f} to {100 * high:.1f}) of {rate['of']}"
    return f"{share}, {100 * rate['characters']:.1f}% of their characters"
