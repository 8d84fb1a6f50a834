"""The loop: look, ask the policy, act, look again, until there is an answer or a budget is spent."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from holotron.actions.action import Action, ActionError, Answer, Click, DoubleClick, Hover, Infeasible, Select, Type
from holotron.agent.chat import Chat, ChatModel, Message, Reply
from holotron.agent.policy_format import JsonFormat, PolicyFormat
from holotron.agent.prompts import (
    POINT_SCHEMA,
    VERDICT_SCHEMA,
    localization_prompt,
    parse_point,
    parse_verdict,
    validation_prompt,
)
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.world import BrowserWorld
from holotron.env.environment import Environment, Observation, TaskStatus
from holotron.env.errors import ActionFailed, Refused

LOCATED = (Click, DoubleClick, Hover, Type, Select)


@dataclass(frozen=True)
class Budget:
    """When an episode ends by itself. max_misunderstood: answers in a row that are no action."""

    steps: int = 30
    seconds: float = 600.0
    tokens: int = 200_000
    max_misunderstood: int = 3


@dataclass(frozen=True)
class Timings:
    observe: float = 0.0
    think: float = 0.0
    act: float = 0.0

    @property
    def total(self) -> float:
        return self.observe + self.think + self.act


@dataclass(frozen=True)
class StepRecord:
    """All of one step. No action: the answer could not be understood, and `error` says why.

    feedback: why an answer was not accepted, or what was said of one that was. forced: only an answer was of use.
    """

    index: int
    observation: Observation
    reply: Reply
    action: Action | None = None
    note: str = ""
    thought: str = ""
    error: str = ""
    status: TaskStatus = field(default_factory=TaskStatus)
    feedback: str | None = None
    forced: bool = False
    timings: Timings = field(default_factory=Timings)


@dataclass(frozen=True)
class Ending:
    """How an episode ended: answered, done, infeasible, step_limit, time_limit or token_limit."""

    reason: str
    answer: str = ""
    success: bool | None = None
    reward: float | None = None
    detail: str = ""


class Agent:
    """A policy at work in a world. The localizer and the validator are models of their own, or the same one again.

    With a localizer the policy's element descriptions are turned into points. A validator judges each answer against
    the last screenshots; what it rejects goes back to the policy while there is budget.
    """

    def __init__(
        self,
        policy: ChatModel,
        env: Environment | BrowserEnv,
        *,
        policy_format: PolicyFormat | None = None,
        budget: Budget | None = None,
        localizer: ChatModel | None = None,
        validator: ChatModel | None = None,
        validator_images: int = 3,
        on_step: Callable[[StepRecord], Awaitable[None]] | None = None,
    ) -> None:
        self.policy = policy
        self.world: Environment = BrowserWorld(env) if isinstance(env, BrowserEnv) else env
        self.format = policy_format or JsonFormat()
        self.budget = budget or Budget()
        self.localizer = localizer
        self.validator = validator
        self.steps: list[StepRecord] = []
        self._validator_images = validator_images
        self._on_step = on_step

    async def run(self, task: str) -> Ending:
        """Do the task. InfrastructureError and ModelUnavailable pass through: they say nothing about the policy."""
        self.steps = []
        chat = await self.policy.open()
        try:
            return await self._episode(task, chat)
        finally:
            await chat.close()

    async def _episode(self, task: str, chat: Chat) -> Ending:
        began, tokens, misunderstood = time.monotonic(), 0, 0
        for index in range(self.budget.steps):
            forced = index == self.budget.steps - 1 or time.monotonic() - began > self.budget.seconds
            record = await self._step(index, task, chat, forced)
            ending = self._ending(record)
            if ending is not None and isinstance(record.action, Answer) and self.validator and not forced:
                accepted, feedback = await self._validate(task, ending.answer, record.observation)
                record = replace(record, feedback=feedback)
                ending = ending if accepted else None
            await self._note(record)
            if ending is not None:
                return ending
            tokens += len(record.reply.token_ids or ())
            misunderstood = misunderstood + 1 if record.action is None else 0
            if time.monotonic() - began > self.budget.seconds and forced:
                return Ending("time_limit")
            if tokens > self.budget.tokens:
                return Ending("token_limit")
            if misunderstood >= self.budget.max_misunderstood:
                return Ending("step_limit", detail=f"{misunderstood} answers in a row were no action: {record.error}")
        return Ending("step_limit")

    async def _step(self, index: int, task: str, chat: Chat, forced: bool) -> StepRecord:
        start = time.monotonic()
        observation = await self.world.observe()
        looked = time.monotonic()
        messages = self.format.messages(task, self.steps, observation, observation.image, forced)
        reply = await chat.say(messages, self.format.schema(forced))
        thought = time.monotonic()
        try:
            step = self.format.parse(reply.text, (observation.width, observation.height))
            action = await self._located(step.action, observation)
        except ActionError as error:
            timings = Timings(looked - start, thought - looked)
            return StepRecord(index, observation, reply, error=str(error), forced=forced, timings=timings)
        problem = ""
        if not isinstance(action, Answer | Infeasible):
            try:
                await self.world.act(action)
            except (ActionFailed, Refused) as error:
                problem = str(error)
        status = await self.world.status()
        timings = Timings(looked - start, thought - looked, time.monotonic() - thought)
        return StepRecord(
            index,
            observation,
            reply,
            action,
            step.note,
            step.thought,
            problem,
            status,
            forced=forced,
            timings=timings,
        )

    async def _located(self, action: Action, observation: Observation) -> Action:
        """The action with the localizer's point, where there is a localizer and something to look for."""
        element = getattr(action, "element", "")
        if self.localizer is None or not element or not isinstance(action, LOCATED):
            return action
        chat = await self.localizer.open()
        try:
            reply = await chat.say([Message("user", localization_prompt(element), observation.image)], POINT_SCHEMA)
        finally:
            await chat.close()
        x, y = parse_point(reply.text)
        return action.model_copy(update={"x": x, "y": y})

    async def _validate(self, task: str, answer: str, last: Observation) -> tuple[bool, str]:
        assert self.validator is not None
        images = [record.observation.image for record in self.steps[-(self._validator_images - 1) :]] + [last.image]
        messages = [Message("user", f"Screenshot {i + 1} of {len(images)}", image) for i, image in enumerate(images)]
        chat = await self.validator.open()
        try:
            reply = await chat.say([*messages, Message("user", validation_prompt(task, answer))], VERDICT_SCHEMA)
            return parse_verdict(reply.text)
        except ActionError as error:
            return True, f"the validator could not be understood: {error}"
        finally:
            await chat.close()

    def _ending(self, record: StepRecord) -> Ending | None:
        if record.status.done:
            return Ending("done", success=record.status.success, reward=record.status.reward)
        if isinstance(record.action, Answer):
            return Ending("answered", answer=record.action.text)
        if isinstance(record.action, Infeasible):
            return Ending("infeasible", detail=record.action.reason)
        return None

    async def _note(self, record: StepRecord) -> None:
        self.steps.append(record)
        if self._on_step is not None:
            await self._on_step(record)
