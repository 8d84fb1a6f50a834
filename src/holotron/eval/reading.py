"""What a small policy reads at a place of a screen it has never seen.

Screens are those of `grounding`. An answer is right if it is the text, letter for letter. Each question is asked in a
conversation of its own.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from holotron.agent.chat import ChatModel, Said
from holotron.data.ground.generate import HELD_OUT_FROM
from holotron.data.ground.labels import LONGEST
from holotron.data.ground.questions import READ
from holotron.data.ground.sources import SOURCES, Sources
from holotron.eval.shares import Share, share_out
from holotron.eval.statistics import wilson
from holotron.model.coordinates import from_pixels

QUESTIONS = 3  # of one screen
Screen = tuple[str, int]  # source, seed


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


def read_share(share: Share[Screen]) -> list[ReadOut]:
    with share.policy() as policy:
        return asyncio.run(_read(share, policy))


async def _read(share: Share[Screen], policy: ChatModel) -> list[ReadOut]:
    async with Sources(held_out=True, at_once=share.at_once) as sources:
        await sources.prepare({source: 1 for source, _ in share.items})
        asked = await share.each(lambda screen: _questions(sources, *screen, policy))
    return [answer for answers in asked for answer in answers]


async def _questions(sources: Sources, source: str, seed: int, policy: ChatModel) -> list[ReadOut]:
    shot = await sources.shot(source, seed)
    if shot is None:
        return []
    readable = [each for each in shot.elements if each.usable and 0 < len(each.text) <= LONGEST]
    random.Random(f"reading/{source}/{seed}").shuffle(readable)
    answers: list[ReadOut] = []
    for element in readable[:QUESTIONS]:
        x, y = from_pixels(*element.middle, shot.width, shot.height)
        began = time.monotonic()
        chat = await policy.open()
        try:
            reply = await chat.say([Said("user", f'{READ}{{"x":{x},"y":{y}}}', shot.png)])
        finally:
            await chat.close()
        answers.append(ReadOut(source, seed, element.text, reply.text.strip(), time.monotonic() - began))
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
    wanted = [(source, HELD_OUT_FROM + seed) for seed in range(screens) for source in sources]
    began = time.monotonic()
    read = share_out(read_share, wanted, model, device=device, workers=workers, at_once=at_once)
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
