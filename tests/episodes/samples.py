"""Episodes for tests: small, the same every time, and strategies for all there can be."""

from __future__ import annotations

import io
from functools import cache

from hypothesis import strategies as st
from PIL import Image

from holotron.actions.action import Action, Answer, Click, Type
from holotron.env.task import Task
from holotron.episodes.errors import AlreadyFinished, BeingWritten
from holotron.episodes.record import (
    EnvironmentInfo,
    EpisodeInfo,
    ModelOutput,
    ObservationRecord,
    Outcome,
    PolicyInfo,
    Result,
    Step,
    StepAction,
    Timings,
)
from holotron.episodes.store import EpisodeStore
from tests.actions.samples import actions

POLICY = PolicyInfo(model="holotron-nano", weight_version=3, sampling={"temperature": 0.7, "greedy": False})
ENVIRONMENT = EnvironmentInfo(name="miniwob", browser="Chromium 141.0", viewport=(500, 320))
STEPS_PER_TASK = 3


@cache
def png(shade: int, width: int = 8, height: int = 6) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (shade % 256, 40, 90)).save(buffer, "PNG")
    return buffer.getvalue()


def a_task(number: int, sample: int = 0) -> Task:
    name = f"click-{number}"
    return Task(text=f"Click «{number}».", url="http://x/", benchmark="miniwob", name=name, seed=number, sample=sample)


def a_step(task: int, index: int) -> Step:
    action: Action = [Click(x=10 * task % 1000, y=index), Type(text="é\n\"'", enter=True), Answer(text=f"{task}")][
        index % 3
    ]
    return Step(
        index=index,
        observation=ObservationRecord(width=8, height=6, url="http://x/", title="Tïtle", tabs=("one", "two")),
        output=ModelOutput(
            text='{"action":…}', token_ids=(1, 2, 3), logprobs=(-0.1, -2.5, 0.0), weight_version=3, prompt_tokens=99
        ),
        note="remember",
        thought=f"step {index} of {task}",
        action=StepAction.of(action, 8, 6),
        result=Result(ok=True, reward=0.0),
        timings=Timings(observe=0.01, think=0.2, act=0.03),
    )


def an_outcome(task: int) -> Outcome:
    return Outcome(reason="answered", success=task % 2 == 0, reward=float(task % 2 == 0))


def write_task(store: EpisodeStore, number: int, steps: int = STEPS_PER_TASK) -> EpisodeInfo:
    with store.begin(a_task(number), POLICY, ENVIRONMENT, started=1000.5 + number) as writer:
        for index in range(steps):
            writer.add_step(a_step(number, index), png(number + index))
        return writer.finish(an_outcome(number), ended=2000.25 + number)


def roll_out(store: EpisodeStore, tasks: int) -> int:
    """What a rollout does: every task that is not completed, whoever else is at it; returns how many it did."""
    done = 0
    completed = store.completed_keys()
    for number in range(tasks):
        if store.key(a_task(number)) not in completed:
            try:
                write_task(store, number)
                done += 1
            except (AlreadyFinished, BeingWritten):
                continue
    return done


def check_store(store: EpisodeStore, tasks: int) -> int:
    """Finished episodes are whole, unfinished ones a beginning, nothing is there twice; returns how many are done."""
    problems = store.check()
    assert problems == []
    for path in store.images.folder.glob("*/*.png"):
        store.image(path.stem)
    infos = store.list_episodes()
    keys = [info.task.key for info in infos]
    assert len(set(keys)) == len(keys)
    for info in infos:
        number = info.task.seed
        assert number is not None
        assert number < tasks
        episode = store.read(info.id)
        written = [step.model_copy(update={"observation": a_step(number, 0).observation}) for step in episode.steps]
        assert written == [a_step(number, index) for index in range(len(episode.steps))]
        for step in episode.steps:
            assert step.observation.image is not None
            assert store.image(step.observation.image) == png(number + step.index)
        if info.finished:
            assert len(episode.steps) == info.step_count == STEPS_PER_TASK
            assert episode.outcome == an_outcome(number)
    return sum(info.finished for info in infos)


# ---- strategies ----

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
SCALARS = st.dictionaries(
    TEXT,
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    max_size=2,
)
FLOATS = st.floats(-1e6, 1e6)
VERSIONS = st.none() | st.integers(0, 99) | TEXT


@st.composite
def outputs(draw: st.DrawFn) -> ModelOutput:
    count = draw(st.integers(0, 5))
    ids = st.lists(st.integers(0, 2**31 - 1), min_size=count, max_size=count)
    logprobs = st.lists(st.floats(-1e300, 0), min_size=count, max_size=count)
    return ModelOutput(
        text=draw(TEXT),
        prompt_ids=draw(st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=5)),
        token_ids=draw(st.none() | ids),
        logprobs=draw(st.none() | logprobs),
        model_logprobs=draw(st.none() | logprobs),
        forced=draw(st.none() | st.lists(st.booleans(), min_size=count, max_size=count)),
        weight_version=draw(VERSIONS),
        weight_versions=draw(st.none() | st.lists(st.integers(0, 99) | TEXT, min_size=count, max_size=count)),
        prompt_tokens=draw(st.none() | st.integers(0, 9999)),
        finish_reason=draw(st.none() | TEXT),
    )


@st.composite
def steps(draw: st.DrawFn, index: int) -> tuple[Step, bytes | None]:
    width, height = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    image = draw(st.none() | st.builds(png, st.integers(0, 3), st.just(width), st.just(height)))
    action, teacher = draw(st.none() | actions()), draw(st.none() | actions())
    seen = ObservationRecord(
        width=width, height=height, url=draw(TEXT), title=draw(TEXT), tabs=tuple(draw(st.lists(TEXT, max_size=2)))
    )
    step = Step(
        index=index,
        observation=seen,
        output=draw(st.none() | outputs()),
        note=draw(TEXT),
        thought=draw(TEXT),
        actor=draw(st.sampled_from(["policy", "teacher", "disturbance"])),
        action=action and StepAction.of(action, width, height, draw(st.sampled_from(["relative", "pixels"]))),
        teacher=teacher and StepAction.of(teacher, width, height),
        result=Result(ok=draw(st.booleans()), error=draw(TEXT), reward=draw(st.none() | FLOATS)),
        timings=Timings(think=draw(st.floats(0, 1e3))),
        feedback=draw(st.none() | TEXT),
        forced=draw(st.booleans()),
    )
    return step, image


OUTCOMES = st.builds(
    Outcome,
    reason=st.sampled_from(
        ["answered", "done", "step_limit", "time_limit", "token_limit", "stuck", "infeasible", "stopped"]
    ),
    success=st.none() | st.booleans(),
    reward=st.none() | FLOATS,
    detail=TEXT,
) | st.builds(Outcome, reason=st.just("infrastructure"), detail=TEXT)


@st.composite
def episodes(draw: st.DrawFn, number: int) -> tuple[EpisodeInfo, list[tuple[Step, bytes | None]]]:
    task = Task(
        text=draw(TEXT),
        url=draw(st.none() | TEXT),
        name=f"task {number}",
        seed=draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
        sample=draw(st.integers(0, 9)),
        extra=draw(SCALARS),
    )
    policy = PolicyInfo(model=draw(TEXT), weight_version=draw(VERSIONS), sampling=draw(SCALARS))
    environment = EnvironmentInfo(
        name=draw(TEXT), viewport=draw(st.none() | st.tuples(st.integers(1, 99), st.integers(1, 99)))
    )
    outcome = draw(st.none() | OUTCOMES)
    info = EpisodeInfo(
        id=f"episode-{number}",
        task=task,
        policy=policy,
        environment=environment,
        started=draw(FLOATS),
        ended=None if outcome is None else draw(FLOATS),
        outcome=outcome,
    )
    return info, [draw(steps(index)) for index in range(draw(st.integers(0, 3)))]
