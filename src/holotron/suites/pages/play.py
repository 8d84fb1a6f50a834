"""Tasks played by their teacher, with disturbances it has to recover from."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import partial
from typing import Any

from holotron.actions import action as a
from holotron.actions.space import Space
from holotron.agent.policy_format import NANO
from holotron.env.errors import ActionFailed
from holotron.episodes.examples import Example, ExampleTurn, said
from holotron.suites.dagger import TeacherTask
from holotron.suites.pages.task import PageTask
from holotron.suites.pages.world import PageWorld

MOST_STEPS = 30
TEXT_FIELDS = "input:not([type=checkbox]):not([type=radio]), textarea"
CONTROLS = "button, a, input, [data-opens], .tabs > div, .head"
# Rows of lists are no more than twice as high.
SAME_POINT = 12
WRONG_WORDS = ("hello", "test", "abc", "Anna", "12", "ok")


@dataclass(frozen=True)
class PlayedPage:
    """An episode; one that is worth less than 1 teaches nothing and `sample` refuses it."""

    task: PageTask
    reward: float | None
    turns: tuple[ExampleTurn, ...]
    problem: str = ""

    def sample(self) -> Example:
        if self.reward != 1:
            raise ValueError(f"{self.task.template} seed {self.task.seed} was not solved: {self.problem or 'reward 0'}")
        about = {"seed": self.task.seed, "reward": self.reward, "task": self.task.text, "size": self.task.viewport}
        return Example(f"pages/{self.task.template}", self.turns, about)


async def next_action(world: PageWorld) -> a.Action | None:
    """What leads to success from here in the fewest natural steps, or None if nothing does any more."""
    step = await world.evaluate("__page.next()")
    return None if step is None else _action(step, Space("pixels", *world.task.viewport))


async def lesson(world: PageWorld, task: PageTask) -> TeacherTask:
    """The task on its page, and the page itself as the teacher."""
    await world.begin(task)
    name = f"pages/{task.template}"
    return TeacherTask(name, task.text, task.seed, NANO, partial(next_action, world), _is_full, SAME_POINT)


def _is_full(reward: float | None) -> bool:
    return reward == 1


async def play_page(world: PageWorld, task: PageTask, noise: float = 0.0, *, max_steps: int = MOST_STEPS) -> PlayedPage:
    """Let the teacher play. With some probability something else is done first, which nobody shall imitate."""
    chance = random.Random(f"{task.template}/{task.seed}/{noise}")
    await world.begin(task)
    turns: list[ExampleTurn] = []
    last: a.Action | None = None
    while len(turns) < max_steps:
        observation = await world.observe()
        action = await next_action(world)
        if action is None:
            return PlayedPage(task, None, tuple(turns), "the teacher sees no way on")
        disturbed = chance.random() < noise
        if disturbed:
            action = await disturbance(world, chance, last, action)
        last = action
        turns.append(ExampleTurn(said(task.text, len(turns)), a.to_json(action), observation.image, not disturbed))
        try:
            await world.act(action)
        except ActionFailed as error:
            return PlayedPage(task, None, tuple(turns), str(error))
        status = await world.status()
        if status.done:
            return PlayedPage(task, status.reward, tuple(turns))
    return PlayedPage(task, None, tuple(turns), "not done after all steps")


async def disturbance(world: PageWorld, chance: random.Random, last: a.Action | None, wanted: a.Action) -> a.Action:
    """Something a clumsy policy might do: the same again, a wrong word, a click on the wrong thing or beside it."""
    if isinstance(last, a.Click) and chance.random() < 0.2:
        return last
    if isinstance(wanted, a.Click | a.Type) and chance.random() < 0.3:
        x, y = wanted.x, wanted.y
        if x is not None and y is not None:
            near = [min(990, max(10, place + chance.randint(-60, 60))) for place in (x, y)]
            return a.Click(x=near[0], y=near[1])
    kind, space = chance.random(), Space("pixels", *world.task.viewport)
    if kind < 0.5:
        selector = TEXT_FIELDS if kind < 0.3 else CONTROLS
        spots = await world.evaluate(f"__page.spots({json.dumps(selector)})")
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
