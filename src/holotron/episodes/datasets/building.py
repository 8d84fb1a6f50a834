"""A draft as an episode: its images read, its answers understood, its points checked."""

from __future__ import annotations

from holotron.actions.action import Action, ActionError, is_terminal
from holotron.actions.dialects.fields import Inexpressible, build
from holotron.env.task import Task
from holotron.episodes.datasets.answers import CODE, read_answer
from holotron.episodes.datasets.drafts import Draft, DraftStep
from holotron.episodes.datasets.pictures import SourcePicture, SourcePictures
from holotron.episodes.datasets.records import BadRecord, Unsupported
from holotron.episodes.datasets.settings import ImportSettings
from holotron.episodes.datasets.spaces import Box, BoxForm, OutsideImage, SourceSpace, corners, space_of, stored_kind
from holotron.episodes.record import (
    EnvironmentInfo,
    EpisodeInfo,
    ObservationRecord,
    Outcome,
    PolicyInfo,
    Step,
    StepAction,
    StepWithImage,
)

Made = tuple[EpisodeInfo, list[StepWithImage]]


def episode_id(layout: str, draft: Draft) -> str:
    """The same for the same content, so that it is brought in once."""
    return f"{layout}.{draft.digest()[:24]}"


def build_episode(settings: ImportSettings, draft: Draft, pictures: SourcePictures) -> Made:
    """The episode of a draft, up to the first step that there are no words for; BadRecord where it cannot be one."""
    steps: list[StepWithImage] = []
    extra, action = dict(draft.extra), None
    for source in draft.steps:
        if source.outline or source.absent:
            raise Unsupported("no box", "the element is a polygon, or is not there")
        picture = pictures.read(draft.images, source.image)
        try:
            action, step, box = _step(settings, draft, source, [step for step, _ in steps], picture)
        except Unsupported:
            if not steps:
                raise
            break
        if box is not None:
            extra["box"] = ",".join(f"{side:g}" for side in box)
        steps.append((step, picture.png))
    name = episode_id(settings.layout, draft)
    outcome = _outcome(draft, action, len(steps) < len(draft.steps))
    info = EpisodeInfo(
        id=name,
        task=Task(text=draft.task, benchmark=settings.layout, name=draft.name, extra=extra),
        policy=PolicyInfo(model=f"import/{settings.layout}", extra={"space": settings.space, "from": draft.where}),
        environment=EnvironmentInfo(name="import"),
        started=0.0,
        ended=0.0,
        outcome=outcome,
    )
    return info, steps


def _outcome(draft: Draft, action: Action | None, cut: bool) -> Outcome:
    if cut:
        return Outcome(
            reason="stopped", success=draft.success, detail="the rest has actions that there are no words for"
        )
    ended = action is not None and is_terminal(action)
    return Outcome(reason="answered" if ended else "done", success=draft.success)


def _step(
    settings: ImportSettings, draft: Draft, source: DraftStep, past: list[Step], picture: SourcePicture
) -> tuple[Action, Step, Box | None]:
    """The action, the step, and its box in pixels of the image where it has one."""
    spec = settings.space or "0..1"
    index, box = len(past), None
    note, thought, operation = source.note, source.thought, source.operation
    try:
        space = space_of(spec, picture.size, source.stated)
        if source.box is not None:
            action, box = _click_box(source, settings.boxes or "xyxy", space, picture.size)
        else:
            form = draft.answers or settings.answers or CODE
            action, words = read_answer(form, source.answer, picture.size, space, past)
            note, thought = note or words.note, thought or words.thought
            operation = operation or words.operation
    except Inexpressible as error:
        raise Unsupported("no words for it", f"step {index}: {error}") from None
    except OutsideImage as error:
        raise BadRecord("point outside", f"step {index}: {error} of {picture.size[0]}×{picture.size[1]}") from None
    except ActionError as error:
        raise BadRecord("answer not understood", f"step {index}: {error}") from None
    kept = {"full": (note, thought or operation), "short": ("", operation or thought), "none": ("", "")}
    note, thought = kept[settings.thoughts]
    width, height = picture.size
    step = Step(
        index=index,
        observation=ObservationRecord(image=picture.digest, width=width, height=height),
        note=note,
        thought=thought,
        actor="disturbance" if source.wrong else "teacher",
        action=StepAction.of(action, width, height, stored_kind(spec)),
    )
    return action, step, box


def _click_box(source: DraftStep, form: BoxForm, space: SourceSpace, size: tuple[int, int]) -> tuple[Action, Box]:
    """A click in the middle of a step's box, and the box in pixels of the image; BadRecord, OutsideImage."""
    assert source.box is not None
    left, top, right, bottom = corners(source.box, form)
    if right < left or bottom < top:
        raise BadRecord(
            "bad box", f"the box {list(source.box)} has its right or lower side before the other, as {form}"
        )
    for corner in ((left, top), (right, bottom)):
        space.to_relative(*corner)
    box = *space.on_image(left, top, size), *space.on_image(right, bottom, size)
    return build("click", space.to_relative((left + right) / 2, (top + bottom) / 2)), box
