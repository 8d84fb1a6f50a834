"""An episode played by an oracle, with disturbances it has to recover from."""

from __future__ import annotations

import random
from dataclasses import dataclass

from holotron.actions.action import Action, Click, to_json
from holotron.env.errors import ActionFailed
from holotron.episodes.examples import Example, ExampleTurn, said
from holotron.suites.miniwob.env import MiniWoBEnv
from holotron.suites.miniwob.errors import MiniWoBError
from holotron.suites.miniwob.oracle.registry import ORACLES
from holotron.suites.miniwob.page_inspector import PageInspector
from holotron.suites.miniwob.protocols import is_success
from holotron.suites.miniwob.world import MiniWoBWorld

MOST_STEPS = 30
# Where a reward grows with precision no pixel gives 1, and this is as good as a hand can do.
NEARLY_FULL = 0.97


class OracleFailed(MiniWoBError):
    """A page that a policy has changed in a way its oracle cannot read any more."""


@dataclass(frozen=True)
class Played:
    task: str
    seed: int
    utterance: str
    reward: float | None
    steps: tuple[ExampleTurn, ...]
    problem: str = ""

    @property
    def solved(self) -> bool:
        return is_solved(self.task, self.reward)

    def sample(self) -> Example:
        return Example(f"miniwob/{self.task}", self.steps, {"seed": self.seed, "reward": self.reward})


def is_solved(task: str, reward: float | None) -> bool:
    return reward is not None and (reward >= NEARLY_FULL or is_success("strict", task, reward))


async def ask(env: MiniWoBEnv) -> Action | None:
    """What the oracle would do now; None where no action leads to success any more."""
    oracle = ORACLES[env.task]
    try:
        return await oracle(PageInspector(env), random.Random(env.seed))
    except (LookupError, ValueError) as error:
        raise OracleFailed(f"{env.task}, seed {env.seed}: {type(error).__name__}: {error}") from error


async def play(
    env: MiniWoBEnv,
    task: str,
    seed: int,
    *,
    noise: float = 0.0,
    max_steps: int = MOST_STEPS,
    reuse: bool = False,
) -> Played:
    """Let the oracle play. With some probability a clumsy click comes first, which nobody shall imitate."""
    chance = random.Random(f"{task}/{seed}/{noise}")
    await env.reset(task, seed, reuse=reuse)
    world = MiniWoBWorld(env)
    turns: list[ExampleTurn] = []
    last: Action | None = None
    utterance = env.utterance
    try:
        while len(turns) < max_steps:
            observation = await world.observe()
            action = await ask(env)
            if action is None:
                return Played(task, seed, utterance, None, tuple(turns), "the oracle sees no way on")
            disturbed = chance.random() < noise
            if disturbed:
                action = disturbance(chance, last, action)
            last = action
            turns.append(ExampleTurn(said(utterance, len(turns)), to_json(action), observation.image, not disturbed))
            await world.act(action)
            status = await world.status()
            if status.done:
                return Played(task, seed, utterance, status.reward, tuple(turns))
    except (ActionFailed, MiniWoBError) as error:
        return Played(task, seed, utterance, None, tuple(turns), f"{type(error).__name__}: {error}")
    return Played(task, seed, utterance, None, tuple(turns), "not done after all steps")


def disturbance(chance: random.Random, last: Action | None, wanted: Action) -> Action:
    """What a clumsy policy might do: click where it just did, beside the mark, or anywhere."""
    kind = chance.random()
    if kind < 0.3 and isinstance(last, Click):
        return _beside(last, 6, chance)
    if kind < 0.6 and isinstance(wanted, Click):
        return _beside(wanted, 90, chance)
    return Click(x=chance.randrange(20, 980), y=chance.randrange(260, 980))


def _beside(click: Click, most: int, chance: random.Random) -> Click:
    """A click at most that many thousandths away."""
    x, y = (min(990, max(10, place + chance.randint(-most, most))) for place in (click.x, click.y))
    return Click(x=x, y=y)
