"""What a generated page would do next by itself, and what a clumsy policy might do instead."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from holotron.actions import action as a
from holotron.actions.coordinates import Space
from holotron.suites.pages.environment import PageEnvironment

TEXT_FIELDS = "input:not([type=checkbox]):not([type=radio]), textarea"
CONTROLS = "button, a, input, [data-opens], .tabs > div, .head"
WRONG_WORDS = ("hello", "test", "abc", "Anna", "12", "ok")


@dataclass(frozen=True)
class PageTeacher:
    """The page itself, which knows the way on from wherever one is."""

    env: PageEnvironment

    async def ask(self) -> a.Action | None:
        """What leads to success from here in the fewest natural steps, or None if nothing does any more."""
        if self.env.impossible:  # what is missing could stand further down
            width, height = self.env.size
            below = await self.env.evaluate(f"__page.will_scroll({width // 2}, {height // 2}, 1)")
            return a.Scroll(direction="down", amount=50) if below else a.Infeasible(reason="not found")
        step = await self.env.evaluate("__page.next()")
        return None if step is None else _action(step, Space("pixels", *self.env.size))


async def disturbance(env: PageEnvironment, chance: random.Random, last: a.Action | None, wanted: a.Action) -> a.Action:
    """Something a clumsy policy might do: the same again, a wrong word, a click on the wrong thing or beside it."""
    if isinstance(last, a.Click) and chance.random() < 0.2:
        return last
    if isinstance(wanted, a.Click | a.Type) and chance.random() < 0.3:
        x, y = wanted.x, wanted.y
        if x is not None and y is not None:
            near = [min(990, max(10, place + chance.randint(-60, 60))) for place in (x, y)]
            return a.Click(x=near[0], y=near[1])
    kind, space = chance.random(), Space("pixels", *env.size)
    if kind < 0.5:
        selector = TEXT_FIELDS if kind < 0.3 else CONTROLS
        spots = await env.evaluate(f"__page.spots({json.dumps(selector)})")
        if spots:
            x, y = space.to_relative(*chance.choice(spots))
            return a.Type(text=chance.choice(WRONG_WORDS), x=x, y=y) if kind < 0.3 else a.Click(x=x, y=y)
    if kind < 0.65:
        return a.Scroll(direction="down" if chance.random() < 0.7 else "up")
    return a.Click(x=chance.randrange(20, 980), y=chance.randrange(20, 980))


def _action(step: dict[str, Any], space: Space) -> a.Action:
    point = space.to_relative(step["x"], step["y"]) if "x" in step else None
    match step["kind"], point:
        case "click", (x, y):
            return a.Click(x=x, y=y)
        case "type", (x, y):
            return a.Type(text=step["text"], x=x, y=y, clear=step["clear"], enter=step["enter"])
        case "select", (x, y):
            return a.Select(x=x, y=y, option=step["option"])
        case "scroll", (x, y):
            return a.Scroll(direction=step["direction"], amount=step["amount"], x=x, y=y)
        case "scroll", None:
            return a.Scroll(direction=step["direction"], amount=step["amount"])
        case "press", None:
            return a.Press(keys=step["keys"])
        case "answer", None:
            return a.Answer(text=step["text"])
    raise AssertionError(f"a page asks for {step}")
