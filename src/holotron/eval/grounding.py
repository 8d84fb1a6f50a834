"""Where a small policy points when asked for an element of a screen it has never seen.

An answer is right if it lies in the element's box.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from holotron.actions.action import ActionError
from holotron.actions.coordinates import Space
from holotron.agent.chat import ChatModel
from holotron.agent.prompts import POINT_SCHEMA, parse_point
from holotron.eval.screens import Screen, answer, ask_screens, held_out
from holotron.eval.statistics import wilson
from holotron.suites.screens.describe import Describer
from holotron.suites.screens.labels import choose
from holotron.suites.screens.questions import FIND
from holotron.suites.screens.rendering import Shot
from holotron.suites.screens.sources import SOURCES

QUESTIONS = 4  # of one screen
SIDES = (12, 20, 32, 64)  # pixels: the shorter side of an element, below each bound and above the last


@dataclass(frozen=True)
class Pointed:
    """One question. No point: the answer was none."""

    source: str
    seed: int
    kind: str
    description: str
    box: tuple[float, float, float, float]
    point: tuple[int, int] | None
    seconds: float

    @property
    def right(self) -> bool:
        left, top, right, bottom = self.box
        return self.point is not None and left <= self.point[0] <= right and top <= self.point[1] <= bottom

    @property
    def side(self) -> str:
        side = min(self.box[2] - self.box[0], self.box[3] - self.box[1])
        bound = next((bound for bound in SIDES if side < bound), None)
        return f"under {bound}" if bound else f"{SIDES[-1]} and more"


async def _questions(shot: Shot, screen: Screen, policy: ChatModel) -> list[Pointed]:
    source, seed = screen
    chance = random.Random(f"grounding/{source}/{seed}")
    describer, space = Describer(shot.elements), Space("pixels", shot.width, shot.height)
    answers: list[Pointed] = []
    for element in choose(shot.elements, chance, QUESTIONS):
        description = describer.describe(element, chance)
        if description is None:
            continue
        said, seconds = await answer(policy, FIND + description, shot.png, POINT_SCHEMA)
        try:
            point = space.from_relative(*parse_point(said))
        except ActionError:
            point = None
        answers.append(Pointed(source, seed, element.kind, description, element.box, point, seconds))
    return answers


def grounding(
    model: str,
    screens: int,
    sources: Sequence[str] = SOURCES,
    *,
    device: str | None = None,
    workers: int = 1,
    at_once: int = 4,
) -> dict[str, Any]:
    """`screens` of each source; shares of right answers over all, by source, by kind and by size."""
    began = time.monotonic()
    pointed = ask_screens(
        _questions, held_out(screens, sources), model, device=device, workers=workers, at_once=at_once
    )
    pointed.sort(key=lambda each: (each.source, each.seed, each.description))
    return {
        "model": model,
        "date": date.today().isoformat(),
        "seconds": time.monotonic() - began,
        "all": _rate(pointed),
        "by_source": _rates(pointed, lambda each: each.source),
        "by_kind": _rates(pointed, lambda each: each.kind),
        "by_side": {
            name: rate
            for bound in (*(f"under {side}" for side in SIDES), f"{SIDES[-1]} and more")
            for name, rate in _rates(pointed, lambda each: each.side).items()
            if name == bound
        },
        "questions": [asdict(each) | {"right": each.right} for each in pointed],
    }


def _rates(pointed: Sequence[Pointed], key: Callable[[Pointed], str]) -> dict[str, Any]:
    groups: dict[str, list[Pointed]] = {}
    for each in pointed:
        groups.setdefault(key(each), []).append(each)
    return {name: _rate(groups[name]) for name in sorted(groups, key=lambda name: -len(groups[name]))}


def _rate(pointed: Sequence[Pointed]) -> dict[str, Any]:
    right = sum(each.right for each in pointed)
    return {"right": right, "of": len(pointed), "interval": wilson(right, len(pointed))}


def told(found: dict[str, Any]) -> str:
    """The report as a text."""
    lines = [f"{found['model']}: {found['all']['of']} questions in {found['seconds']:.0f} s"]
    for title in ("by_source", "by_side", "by_kind"):
        lines.append(title.replace("_", " "))
        lines += [f"  {name:16} {_told(rate)}" for name, rate in found[title].items()]
    return "\n".join([*lines, f"  {'all':16} {_told(found['all'])}"])


def _told(rate: dict[str, Any]) -> str:
    low, high = rate["interval"]
    share = rate["right"] / max(1, rate["of"])
    return f"{100 * share:5.1f}% ({100 * low:.1f} to {100 * high:.1f}) of {rate['of']}"
