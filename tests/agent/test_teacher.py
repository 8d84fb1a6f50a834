"""A teacher in the loop: it plays, is disturbed, watches a policy, and takes over. Without a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holotron.actions.action import Action, Click, parse_action
from holotron.agent.agent import Agent, Budget, Ending, StepRecord
from holotron.agent.policy_format import BareJsonFormat
from holotron.agent.teacher import Supervision, TeacherFailed, same
from holotron.env.environment import Observation, TaskStatus
from holotron.env.errors import ActionFailed
from holotron.episodes.recording import step_of
from tests.agent.replies import Recited

WAY = [Click(x=100, y=100), Click(x=200, y=200), Click(x=300, y=300)]
ASTRAY = Click(x=900, y=900)


class Corridor:
    """A world in which the three clicks of WAY, in order, lead to the end. Others change nothing, or fail."""

    instruction = "walk"

    def __init__(self) -> None:
        self.at = 0
        self.acted: list[Action] = []
        self.fails: Action | None = None

    async def observe(self) -> Observation:
        return Observation(b"png", 1000, 1000)

    async def act(self, action: Action) -> None:
        if action == self.fails:
            raise ActionFailed("the floor is wet")
        self.acted.append(action)
        self.at += action == WAY[self.at]

    async def status(self) -> TaskStatus:
        return TaskStatus(True, 1.0, True) if self.at == len(WAY) else TaskStatus()

    async def ask(self) -> Action | None:
        return WAY[self.at]


def play(
    world: Corridor, supervision: Supervision, *answers: str, **budget: int
) -> tuple[Ending, list[StepRecord], Recited | None]:
    policy = Recited(*answers) if answers else None
    agent = Agent(
        policy,
        world,  # type: ignore[arg-type]
        policy_format=BareJsonFormat(),
        budget=Budget(**budget),
        supervision=supervision,
    )
    return asyncio.run(agent.run("walk")), agent.steps, policy


def clicks(*points: int) -> list[str]:
    return [f'{{"action":"click","x":{point},"y":{point}}}' for point in points]


def actors(steps: Sequence[StepRecord]) -> list[str]:
    return [step.actor for step in steps]


def test_a_teacher_plays_alone() -> None:
    world = Corridor()
    ending, steps, _ = play(world, Supervision(world))
    assert (ending.reason, ending.success) == ("done", True)
    assert actors(steps) == ["teacher"] * 3
    assert [step.action for step in steps] == [step.teacher for step in steps] == WAY
    assert all(step.reply is None for step in steps)
    assert step_of(steps[0]).output is None


def test_what_disturbs_a_teacher_is_told_from_what_it_wants() -> None:
    world, heard = Corridor(), []

    async def disturb(last: Action | None, wanted: Action) -> Action | None:
        heard.append((last, wanted))
        return ASTRAY if len(heard) == 2 else None

    ending, steps, _ = play(world, Supervision(world, disturb=disturb))
    assert ending.success
    assert actors(steps) == ["teacher", "disturbance", "teacher", "teacher"]
    assert heard == [(None, WAY[0]), (WAY[0], WAY[1]), (ASTRAY, WAY[1]), (WAY[1], WAY[2])]
    stored = step_of(steps[1])
    assert stored.actor == "disturbance"
    assert stored.action is not None
    assert stored.teacher is not None
    assert (stored.action.parse(), stored.teacher.parse()) == (ASTRAY, WAY[1])


def test_a_policy_is_corrected_where_it_goes_astray_and_then_relieved() -> None:
    """DAgger: near the teacher's point is the same; after two deviations the teacher plays to the end."""
    world = Corridor()
    ending, steps, policy = play(world, Supervision(world, 2, near=10), *clicks(105, 900, 950, 900))
    assert ending.success
    assert actors(steps) == ["teacher", "policy", "policy", "teacher", "teacher"]
    assert [step.action for step in steps] == [WAY[0], ASTRAY, Click(x=950, y=950), WAY[1], WAY[2]]
    assert world.acted == [step.action for step in steps]
    assert [step.teacher for step in steps] == [WAY[0], WAY[1], WAY[1], WAY[1], WAY[2]]
    assert [step.reply is not None for step in steps] == [True, True, True, False, False]
    assert policy is not None
    assert (len(policy.heard), policy.closed) == (4, 1)  # the system's message, and three questions


def test_an_answer_that_is_no_action_is_corrected_too() -> None:
    world = Corridor()
    ending, steps, _ = play(world, Supervision(world, 2), "what?", max_misunderstood=1)
    assert ending.reason == "step_limit"
    assert [(step.action, step.teacher, step.actor) for step in steps] == [(None, WAY[0], "policy")]


def test_a_teacher_that_knows_no_way_ends_the_episode() -> None:
    class Lost(Corridor):
        async def ask(self) -> Action | None:
            if self.at == 2:
                raise TeacherFailed("the page is gone")
            return None if self.at == 1 else WAY[0]

    world = Lost()
    ending, steps, _ = play(world, Supervision(world))
    assert (ending.reason, ending.detail) == ("stopped", "the teacher knows no way to success from here")
    assert len(steps) == 1
    world.at = 2
    assert play(world, Supervision(world))[0].detail == "the page is gone"


def test_a_teachers_action_that_fails_ends_the_episode_and_a_policys_does_not() -> None:
    world = Corridor()
    world.fails = WAY[1]
    ending, steps, _ = play(world, Supervision(world))
    assert (ending.reason, ending.detail) == ("stopped", "the teacher's action failed: the floor is wet")
    assert [step.error for step in steps] == ["", "the floor is wet"]
    world = Corridor()
    world.fails = ASTRAY
    ending, steps, _ = play(world, Supervision(world, 1), *clicks(900))
    assert ending.success
    assert [step.error for step in steps] == ["the floor is wet", "", "", ""]


def test_somebody_must_play() -> None:
    with pytest.raises(ValueError, match="nobody plays"):
        Agent(None, Corridor())  # type: ignore[arg-type]


def test_near_misses_are_the_same_click() -> None:
    assert same(Click(x=500, y=500), Click(x=520, y=490), near=30)
    assert not same(Click(x=500, y=500), Click(x=520, y=490), near=15)
    assert not same(Click(x=500, y=500), parse_action('{"action":"hover","x":500,"y":500}'), near=30)
