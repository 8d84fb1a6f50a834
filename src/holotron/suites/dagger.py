"""Samples from the states that a policy gets itself into (DAgger): it plays, and a teacher says what was to be done.

Where the two differ, one sample ends with the teacher's action, and another goes on behind the policy's: there the
teacher shows the way back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holotron.actions.action import Action, ActionError, parse_action, to_dict, to_json
from holotron.agent.chat import ChatModel, ChatOptions, Message
from holotron.agent.policy_format import PolicyFormat
from holotron.env.environment import Environment
from holotron.env.errors import ActionFailed
from holotron.episodes.examples import Example, ExampleTurn, said


@dataclass(frozen=True)
class TeacherTask:
    """One task and its teacher.

    ask: what the teacher would do now; None where nothing that it knows leads to success any more.
    near: a point this near to the teacher's, in thousandths, is the same click.
    """

    kind: str
    text: str
    seed: int
    policy_format: PolicyFormat
    ask: Callable[[], Awaitable[Action | None]]
    solved: Callable[[float | None], bool]
    near: int


@contextmanager
def playing(model: str, device: str | None) -> Iterator[ChatModel]:
    """A policy that plays to be corrected, not always as it thinks best: it shall go astray in more than one way."""
    from holotron.agent.in_process import loaded

    with loaded(model, device, style=ChatOptions(max_tokens=160, temperature=0.5), cuda_graphs=False) as policy:
        yield policy


async def relabel(
    world: Environment, lesson: TeacherTask, policy: ChatModel, *, max_steps: int = 20, deviations: int = 2
) -> list[Example]:
    """Samples of an episode that the policy plays until it has gone astray a few times; then the teacher finishes."""
    kind, about = f"dagger/{lesson.kind}", {"seed": lesson.seed}
    samples: list[Example] = []
    turns: list[ExampleTurn] = []
    astray = 0
    chat = await policy.open()
    try:
        while len(turns) < max_steps:
            observation = await world.observe()
            wanted = await lesson.ask()
            if wanted is None:
                return samples
            done = wanted
            told = said(lesson.text, len(turns))
            if astray < deviations:
                reply = await chat.say([Message("user", told, observation.image)], lesson.policy_format.schema())
                chosen = _understood(reply.text)
                if chosen is None or not same(chosen, wanted, lesson.near):
                    astray += 1
                    right = ExampleTurn(told, to_json(wanted), observation.image)
                    samples.append(Example(kind, (*turns, right), about | {"cut": True}))
                    if chosen is None:
                        return samples
                    done = chosen
            turns.append(ExampleTurn(told, to_json(done), observation.image, learn=done is wanted))
            try:
                await world.act(done)
            except ActionFailed:
                if done is wanted:
                    return samples
            status = await world.status()
            if status.done:
                if turns[-1].learn and lesson.solved(status.reward):
                    samples.append(Example(kind, tuple(turns), about | {"reward": status.reward}))
                break
    finally:
        await chat.close()
    return samples


def _understood(text: str) -> Action | None:
    try:
        return parse_action(text)
    except ActionError:
        return None


def same(action: Action, other: Action, near: int) -> bool:
    """Whether two actions do the same, up to a near miss of a point."""
    first, second = to_dict(action), to_dict(other)
    if first.keys() != second.keys():
        return False
    return all(
        abs(value - second[key]) <= near if key in ("x", "y", "to_x", "to_y") else value == second[key]
        for key, value in first.items()
    )
