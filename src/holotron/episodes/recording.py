"""What the loop did, as episodes keep it."""

from __future__ import annotations

from holotron.agent.agent import Ending, StepRecord
from holotron.episodes.record import ModelOutput, ObservationRecord, Outcome, Result, Step, StepAction, Timings


def step_of(record: StepRecord) -> Step:
    """One step, without its image, which is stored beside it."""
    observation, reply, spent = record.observation, record.reply, record.timings
    action = None
    if record.action is not None:
        action = StepAction.of(record.action, observation.width, observation.height)
    return Step(
        index=record.index,
        observation=ObservationRecord(
            width=observation.width,
            height=observation.height,
            url=observation.url,
            title=observation.title,
            tabs=observation.tabs,
            notices=observation.notices,
        ),
        output=ModelOutput(**vars(reply)),
        note=record.note,
        thought=record.thought,
        action=action,
        result=Result(ok=not record.error, error=record.error, reward=record.status.reward),
        timings=Timings(observe=spent.observe, think=spent.think, act=spent.act),
        feedback=record.feedback,
        forced=record.forced,
    )


def outcome_of(ending: Ending) -> Outcome:
    detail = ending.answer or ending.detail
    return Outcome.model_validate(
        {"reason": ending.reason, "success": ending.success, "reward": ending.reward, "detail": detail}
    )
