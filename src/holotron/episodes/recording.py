"""What the loop did, as episodes keep it."""

from __future__ import annotations

from holotron.actions.action import Action
from holotron.agent.agent import Ending, StepRecord
from holotron.episodes.record import ModelOutput, ObservationRecord, Outcome, Result, Step, StepAction, Timings


def step_of(record: StepRecord) -> Step:
    """One step, without its image, which is stored beside it."""
    observation = record.observation

    def stored(action: Action | None) -> StepAction | None:
        return None if action is None else StepAction.of(action, observation.width, observation.height)

    return Step(
        index=record.index,
        observation=ObservationRecord(
            width=observation.width,
            height=observation.height,
            url=observation.url,
            title=observation.title,
            tabs=tuple(map(str, observation.tabs)),
            notices=observation.notices,
        ),
        output=None if record.reply is None else ModelOutput(**vars(record.reply)),
        note=record.note,
        thought=record.thought,
        actor=record.actor,
        action=stored(record.action),
        teacher=stored(record.teacher),
        result=Result(ok=not record.error, error=record.error, reward=record.status.reward),
        timings=Timings(**vars(record.timings)),
        feedback=record.feedback,
        forced=record.forced,
    )


def outcome_of(ending: Ending) -> Outcome:
    detail = ending.answer or ending.detail
    return Outcome.model_validate(
        {"reason": ending.reason, "success": ending.success, "reward": ending.reward, "detail": detail}
    )
