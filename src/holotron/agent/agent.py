"""The loop: look, ask the policy or the teacher, act, look again, until there is an answer or a budget is spent."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Literal, ParamSpec, TypeAlias, TypeVar

from holotron.actions.action import Action, ActionError, Answer, Click, DoubleClick, Hover, Infeasible, Select, Type
from holotron.agent.chat import Chat, ChatModel, Message, Reply, SeededModel, numbered_screenshots, say_once
from holotron.agent.formats.localizers import JsonLocalizer, Localizer
from holotron.agent.policy_format import JsonFormat, PolicyFormat
from holotron.agent.prompts import VERDICT_SCHEMA, parse_verdict, validation_prompt
from holotron.agent.stuck import StuckDetector, StuckLimits
from holotron.agent.teacher import Supervision, TeacherFailed, same
from holotron.env.environment import Environment, Observation, Questioning, TaskStatus
from holotron.env.errors import ActionFailed, Refused
from holotron.env.safety.confirm import Question

P = ParamSpec("P")
T = TypeVar("T")
Hook: TypeAlias = Callable[P, T | Awaitable[T]]
LOCATED = (Click, DoubleClick, Hover, Type, Select)
Actor = Literal["policy", "teacher", "disturbance"]


@dataclass(frozen=True)
class Budget:
    """When an episode ends by itself. max_misunderstood: answers in a row that are no action."""

    steps: int = 30
    seconds: float = 600.0
    tokens: int = 200_000
    max_misunderstood: int = 3


@dataclass(frozen=True)
class StepTimings:
    observe: float = 0.0
    think: float = 0.0
    act: float = 0.0

    @property
    def total(self) -> float:
        return self.observe + self.think + self.act


@dataclass(frozen=True)
class StepRecord:
    """All of one step. No action: the answer could not be understood, and `error` says why.

    reply: None where the policy was not asked. actor: who chose the action; where the policy and the teacher agree, the
    teacher's is carried out. teacher: what the teacher would do here, where there is one. feedback: why an answer was
    not accepted, or what was said of one that was. forced: only an answer was of use.
    """

    index: int
    observation: Observation
    reply: Reply | None = None
    action: Action | None = None
    actor: Actor = "policy"
    teacher: Action | None = None
    note: str = ""
    thought: str = ""
    error: str = ""
    status: TaskStatus = field(default_factory=TaskStatus)
    feedback: str | None = None
    forced: bool = False
    timings: StepTimings = field(default_factory=StepTimings)


@dataclass(frozen=True)
class Ending:
    """How an episode ended.

    reason: answered, done, infeasible, step_limit, time_limit, token_limit, stuck, or stopped (by a teacher or a hook).
    forced: the answer was given at the last step, where nothing else was possible; the reason is then the limit.
    """

    reason: str
    answer: str = ""
    success: bool | None = None
    reward: float | None = None
    detail: str = ""
    forced: bool = False


class Agent:
    """A policy at work in an environment, in which the task was begun.

    The localizer and the validator are models of their own, or the same one again. With a localizer the policy's
    element descriptions are turned into points. A validator judges each answer against the last screenshots; what it
    rejects goes back to the policy while there is budget. Under supervision a teacher says at each step what it would
    do, and plays where the policy may not, or where there is none.

    Hooks may be plain or async functions. on_step hears of each step. on_question answers what the environment asks
    before an action that its rules name: True goes on. should_stop is asked after each step: a true value ends the
    run as `stopped`, and a text is the reason given. stuck: limits at which going in circles ends it as `stuck`. seed:
    decides what the policy draws, where it is a SeededModel.
    """

    def __init__(
        self,
        policy: ChatModel | None,
        env: Environment,
        *,
        policy_format: PolicyFormat | None = None,
        budget: Budget | None = None,
        localizer: ChatModel | None = None,
        localizer_format: Localizer | None = None,
        validator: ChatModel | None = None,
        validator_images: int = 3,
        supervision: Supervision | None = None,
        stuck: StuckLimits | None = None,
        seed: int | None = None,
        on_step: Hook[[StepRecord], None] | None = None,
        on_question: Hook[[Question], bool] | None = None,
        should_stop: Hook[[StepRecord], bool | str | None] | None = None,
    ) -> None:
        if policy is None and supervision is None:
            raise ValueError("nobody plays; an Agent needs a policy, a supervision, or both")
        self.policy = policy
        self.env = env
        self.format = policy_format or JsonFormat()
        self.budget = budget or Budget()
        self.localizer = localizer
        self.localizer_format = localizer_format or JsonLocalizer()
        self.validator = validator
        self.supervision = supervision
        self.steps: list[StepRecord] = []
        self._validator_images = validator_images
        self._stuck = stuck
        self._seed = seed
        self._on_step = on_step
        self._on_question = on_question
        self._should_stop = should_stop

    async def run(self, task: str) -> Ending:
        """Do the task. InfrastructureError and ModelUnavailable pass through: they say nothing about the policy."""
        self.steps = []
        if (hook := self._on_question) is not None and isinstance(self.env, Questioning):
            self.env.answer_questions_by(lambda question: call_hook(hook, question))
        chat = None if self.policy is None else await self._open(self.policy)
        try:
            return await self._episode(task, chat)
        except TeacherFailed as error:
            return Ending("stopped", detail=str(error))
        finally:
            if chat is not None:
                await chat.close()

    async def _open(self, policy: ChatModel) -> Chat:
        if self._seed is None:
            return await policy.open()
        if not isinstance(policy, SeededModel):
            raise ValueError(f"{policy.name} draws as it likes; a seed is for a model in this process")
        return await policy.open_seeded(self._seed)

    async def _episode(self, task: str, chat: Chat | None) -> Ending:
        began, tokens, misunderstood = time.monotonic(), 0, 0
        detector = None if self._stuck is None else StuckDetector(self._stuck)
        for index in range(self.budget.steps):
            forced = index == self.budget.steps - 1 or time.monotonic() - began > self.budget.seconds
            record = await self._step(index, task, chat, forced)
            ending = self._ending(record, "time_limit" if index < self.budget.steps - 1 else "step_limit")
            if ending is not None and isinstance(record.action, Answer) and self.validator and not forced:
                accepted, feedback = await self._validate(task, ending.answer, record.observation)
                record = replace(record, feedback=feedback)
                ending = ending if accepted else None
            await self._note(record)
            if ending is not None:
                return ending
            if record.actor == "teacher" and record.error:
                raise TeacherFailed(f"the teacher's action failed: {record.error}")
            tokens += len(record.reply.token_ids or ()) if record.reply else 0
            misunderstood = misunderstood + 1 if record.action is None else 0
            if time.monotonic() - began > self.budget.seconds and forced:
                return Ending("time_limit")
            if tokens > self.budget.tokens:
                return Ending("token_limit")
            if misunderstood >= self.budget.max_misunderstood:
                return Ending("step_limit", detail=f"{misunderstood} answers in a row were no action: {record.error}")
            if self._should_stop is not None and (why := await call_hook(self._should_stop, record)):
                return Ending("stopped", detail=why if isinstance(why, str) else "should_stop said so")
            seen = record.observation
            if detector is not None and (why := detector.add(seen.image, seen.url, record.action)):
                return Ending("stuck", detail=why)
        return Ending("step_limit")

    async def _step(self, index: int, task: str, chat: Chat | None, forced: bool) -> StepRecord:
        start = time.monotonic()
        observation = await self.env.observe()
        looked = time.monotonic()
        record = StepRecord(index, observation, forced=forced)
        if self.supervision is not None:
            record = replace(record, teacher=await self.supervision.ask())
        if chat is None or self._teacher_plays:
            record = await self._taught(record)
        else:
            record = await self._chosen(record, task, chat)
        thought = time.monotonic()
        if record.action is None:
            return replace(record, timings=StepTimings(looked - start, thought - looked))
        problem = ""
        if not isinstance(record.action, Answer | Infeasible):
            try:
                await self.env.act(record.action)
            except (ActionFailed, Refused) as error:
                problem = str(error)
        status = await self.env.status()
        timings = StepTimings(looked - start, thought - looked, time.monotonic() - thought)
        return replace(record, error=problem, status=status, timings=timings)

    async def _chosen(self, record: StepRecord, task: str, chat: Chat) -> StepRecord:
        """The step with the policy's action, or with the teacher's where that is the same."""
        seen, forced = record.observation, record.forced
        told = self.format.instruction(task, self.steps, seen)
        messages = self.format.messages(told, self.steps, seen, seen.image, forced)
        reply = await chat.say(messages, self.format.schema(forced))
        try:
            step = self.format.parse(reply.text, (seen.width, seen.height), self.steps)
            action = await self._located(self.format.to_screen(step.action, seen.image), seen)
        except ActionError as error:
            return replace(record, reply=reply, error=str(error))
        record = replace(record, reply=reply, action=action, note=step.note, thought=step.thought)
        wanted, supervision = record.teacher, self.supervision
        if wanted is not None and supervision is not None and same(action, wanted, supervision.near):
            return replace(record, action=wanted, actor="teacher")
        return record

    async def _taught(self, record: StepRecord) -> StepRecord:
        """The step with the teacher's action, or with a clumsy one in its place."""
        assert self.supervision is not None
        assert record.teacher is not None
        if self.supervision.disturb is not None:
            last = self.steps[-1].action if self.steps else None
            disturbed = await self.supervision.disturb(last, record.teacher)
            if disturbed is not None:
                return replace(record, action=disturbed, actor="disturbance")
        return replace(record, action=record.teacher, actor="teacher")

    @property
    def _teacher_plays(self) -> bool:
        """Whether the policy has gone astray as often as it may."""
        if self.supervision is None:
            return False
        return sum(step.actor == "policy" for step in self.steps) >= self.supervision.deviations

    async def _located(self, action: Action, observation: Observation) -> Action:
        """The action with the localizer's point, where there is a localizer and something to look for."""
        element = getattr(action, "element", "")
        if self.localizer is None or not element or not isinstance(action, LOCATED):
            return action
        size, asked = (observation.width, observation.height), self.localizer_format
        reply = await say_once(self.localizer, asked.messages(element, observation.image, size), asked.schema())
        x, y = asked.parse(reply.text, size)
        return action.model_copy(update={"x": x, "y": y})

    async def _validate(self, task: str, answer: str, last: Observation) -> tuple[bool, str]:
        assert self.validator is not None
        images = [record.observation.image for record in self.steps[-(self._validator_images - 1) :]] + [last.image]
        messages = [*numbered_screenshots(images), Message("user", validation_prompt(task, answer))]
        reply = await say_once(self.validator, messages, VERDICT_SCHEMA)
        try:
            return parse_verdict(reply.text)
        except ActionError as error:
            return True, f"the validator could not be understood: {error}"

    def _ending(self, record: StepRecord, limit: str) -> Ending | None:
        if record.status.done:
            return Ending("done", success=record.status.success, reward=record.status.reward)
        if isinstance(record.action, Answer):
            if record.forced and record.actor == "policy":  # it had no choice: nothing says that the task is done
                return Ending(limit, answer=record.action.text, forced=True)
            return Ending("answered", answer=record.action.text)
        if isinstance(record.action, Infeasible):
            return Ending("infeasible", detail=record.action.reason)
        return None

    async def _note(self, record: StepRecord) -> None:
        self.steps.append(record)
        if self._on_step is not None:
            await call_hook(self._on_step, record)


async def call_hook(hook: Hook[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a plain or async function returns."""
    found = hook(*args, **kwargs)
    return await found if inspect.isawaitable(found) else found
