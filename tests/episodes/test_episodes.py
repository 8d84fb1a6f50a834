"""The episode store: what goes in comes out, whoever asks finds it, and no secret gets in."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from holotron.actions.action import Click, Type
from holotron.env.task import Task
from holotron.episodes.errors import AlreadyFinished, EpisodeError, NewerSchema
from holotron.episodes.reading import encode
from holotron.episodes.record import (
    SCHEMA,
    EnvironmentInfo,
    Episode,
    EpisodeInfo,
    ModelOutput,
    ObservationRecord,
    Outcome,
    PolicyInfo,
    Result,
    Step,
    StepAction,
)
from holotron.episodes.store import EpisodeStore, id_of, new_id
from holotron.episodes.transfer import copy_in
from tests.episodes.samples import (
    ENVIRONMENT,
    POLICY,
    a_step,
    a_task,
    an_outcome,
    check_store,
    episodes,
    png,
    roll_out,
    write_task,
)

SAMPLE = Path(__file__).parent / "sample_store"


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_goes_in_comes_out(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = EpisodeStore(folder, sync="never")
    info, steps = data.draw(episodes(0))
    assert copy_in(store, info, steps)
    episode = store.read(info.id)
    images = tuple(step.observation.image for step in episode.steps)
    given_steps = tuple(
        step.model_copy(update={"observation": step.observation.model_copy(update={"image": image})})
        for (step, _), image in zip(steps, images, strict=True)
    )
    assert episode == Episode.of(info, given_steps)
    assert [None if image is None else store.image(image) for image in images] == [image for _, image in steps]
    shutil.rmtree(folder)


def test_layout(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path)
    info = write_task(store, 3)
    assert info.id.startswith("miniwob-click-3.3.0.")
    meta = json.loads((tmp_path / "episodes" / info.id / "meta.json").read_text())
    assert meta["schema"] == SCHEMA
    assert list(meta)[:3] == ["schema", "id", "task"]
    lines = (tmp_path / "episodes" / info.id / "steps.jsonl").read_text().splitlines()
    assert [json.loads(line)["index"] for line in lines] == [0, 1, 2]
    digest = json.loads(lines[0])["observation"]["image"]
    assert (tmp_path / "images" / digest[:2] / f"{digest}.png").read_bytes() == png(3)
    assert json.loads(lines[1])["action"] == {
        "text": '{"action":"type","text":"é\\n\\"\'","enter":true}',
        "space": "relative",
        "width": 8,
        "height": 6,
    }


def test_equal_screenshots_are_kept_once(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path)
    for number in range(4):
        write_task(store, number)  # shades 0-2, 1-3, 2-4, 3-5
    assert len(list((tmp_path / "images").rglob("*.png"))) == 6


def test_finding_episodes(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path)
    assert store.list_episodes() == []
    assert store.completed_keys() == set()
    for number in range(4):
        write_task(store, number)
    with store.begin(a_task(4), POLICY, ENVIRONMENT) as writer:
        writer.finish(Outcome(reason="infrastructure", detail="the browser crashed"))
    store.begin(a_task(5), POLICY, ENVIRONMENT).close()
    with store.begin(Task(text="Find it", url="http://y/"), POLICY, ENVIRONMENT, episode_id=new_id()) as writer:
        writer.finish(Outcome(reason="step_limit", success=False))

    (tmp_path / "episodes" / "notes.txt").write_text("not an episode")
    assert len(store.list_episodes()) == 7
    assert len(store.list_episodes(benchmark="miniwob")) == 6
    assert [info.task.seed for info in store.list_episodes(finished=False)] == [5]
    outcomes = [info.outcome for info in store.list_episodes(benchmark="miniwob", finished=True)]
    assert [outcome.success for outcome in outcomes if outcome] == [True, False, True, False, None]
    assert store.completed_keys() == {a_task(number).key for number in range(4)} | {("http://y//Find it", None, 0)}


def test_each_task_is_done_once_and_failures_of_the_infrastructure_again(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path)
    write_task(store, 0)
    with pytest.raises(AlreadyFinished, match="is finished"):
        store.begin(a_task(0), POLICY, ENVIRONMENT)
    with store.begin(a_task(1), POLICY, ENVIRONMENT) as writer:
        writer.add_step(a_step(1, 0), png(1))
        writer.finish(Outcome(reason="infrastructure"))
    store.begin(a_task(2), POLICY, ENVIRONMENT).close()
    assert roll_out(store, 3) == 2
    assert check_store(store, 3) == 3
    assert len(list((tmp_path / "abandoned").iterdir())) == 2
    assert roll_out(store, 3) == 0


def test_ids_are_different_for_different_keys() -> None:
    keys = [
        Task(text="a", name=name, seed=seed, sample=sample).key
        for name in ("x", "x-1", "X", "../../etc", "ü" * 200)
        for seed in (None, 0, -5, 2**62)
        for sample in (0, 1)
    ]
    ids = [id_of(key) for key in keys]
    assert len(set(ids)) == len(keys)
    for id_ in ids:
        EpisodeInfo(id=id_, task=a_task(0), policy=POLICY, environment=ENVIRONMENT, started=0)


@pytest.mark.parametrize("id_", ["", "..", ".hidden", "a/b", "a" * 129, "a\n", "ü"])
def test_ids_cannot_leave_the_folder(tmp_path: Path, id_: str) -> None:
    store = EpisodeStore(tmp_path)
    with pytest.raises(ValidationError):
        store.begin(a_task(0), POLICY, ENVIRONMENT, episode_id=id_)
    with pytest.raises(EpisodeError, match="there is no episode"):
        store.read(id_)
    assert not (tmp_path / "episodes").exists()


# ---- what may be written ----


def test_infrastructure_failures_have_no_reward() -> None:
    for fields in ({"success": False}, {"reward": 0.0}):
        with pytest.raises(ValidationError, match="neither success nor reward"):
            Outcome(reason="infrastructure", **fields)
    with pytest.raises(ValidationError, match="finite"):
        Outcome(reason="done", reward=float("nan"))


def test_wrong_steps_are_refused(tmp_path: Path) -> None:
    with EpisodeStore(tmp_path).begin(a_task(0), POLICY, ENVIRONMENT) as writer:
        with pytest.raises(EpisodeError, match="step 1 cannot follow 0 steps"):
            writer.add_step(a_step(0, 1), png(0))
        with pytest.raises(EpisodeError, match="is 9×6, and its observation says 8×6"):
            writer.add_step(a_step(0, 0), png(0, 9, 6))
        with pytest.raises(EpisodeError, match="kept as PNG"):
            writer.add_step(a_step(0, 0), b"\xff\xd8\xff" + bytes(40))
        seen = ObservationRecord(image="0" * 64, width=8, height=6)
        with pytest.raises(EpisodeError, match="which the store does not have"):
            writer.add_step(Step(index=0, observation=seen))
        with pytest.raises(ValidationError, match="3 token_ids but 1 logprobs"):
            ModelOutput(text="", token_ids=(1, 2, 3), logprobs=(0.0,))
        writer.add_step(Step(index=0, observation=ObservationRecord(width=8, height=6, title="half \ud83d of a pair")))
        writer.finish(an_outcome(0))
    [step] = EpisodeStore(tmp_path).read(writer.info.id).steps
    assert step.observation.title == "half \ufffd of a pair"


# ---- secrets ----


def test_no_secret_is_written(tmp_path: Path) -> None:
    secret = 'p"ß\\w0rd'
    store = EpisodeStore(tmp_path, redact=lambda text: text.replace(secret, "«secret»"))
    task = Task(text=f"Log in with {secret}", url=f"http://x/?{secret}", name=f"login {secret}", extra={secret: secret})
    raw = json.dumps({"action": "type", "text": secret}, ensure_ascii=False)
    with store.begin(task, PolicyInfo(model=secret), EnvironmentInfo(name=secret)) as writer:
        for index, text in enumerate((raw, f"I type {secret}", "nothing here")):
            writer.add_step(
                Step(
                    index=index,
                    observation=ObservationRecord(width=8, height=6, title=secret, tabs=(secret,), notices=(secret,)),
                    output=ModelOutput(
                        text=text, prompt_ids=(3, 4), token_ids=(5, 6), logprobs=(0.0, 0.0), forced=(False, True)
                    ),
                    note=secret,
                    thought=secret,
                    action=StepAction.of(Type(text=secret, element=secret) if index < 2 else Click(x=1, y=2), 8, 6),
                    result=Result(ok=False, error=secret),
                    feedback=secret,
                ),
                png(0),
            )
        writer.finish(Outcome(reason="stopped", detail=secret))
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*.json*"))
    for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        assert form.encode() not in written
    assert secret[:1] + '"' not in str(list(tmp_path.rglob("*")))
    steps = store.read(writer.info.id).steps
    assert steps[0].action is not None
    assert steps[0].action.parse() == Type(text="«secret»", element="«secret»")
    outputs = [step.output for step in steps]
    assert [output and output.redacted for output in outputs] == [True, True, False]
    assert [output and output.token_ids for output in outputs] == [None, None, (5, 6)]
    assert [output and output.forced for output in outputs] == [None, None, (False, True)]
    assert all(output is not None and output.prompt_ids is None for output in outputs)
    assert store.key(task) in store.completed_keys()


def test_prompts_are_kept_until_a_secret_was_seen(tmp_path: Path) -> None:
    """The tokens of what was told are dropped from the step on in which something was redacted."""
    store = EpisodeStore(tmp_path, redact=lambda text: text.replace("hunter2", "«secret»"))
    output = ModelOutput(text="{}", prompt_ids=(3, 4), token_ids=(5,))
    with store.begin(a_task(0), POLICY, ENVIRONMENT) as writer:
        for index, title in enumerate(("Log in", "Welcome hunter2", "Log in")):
            seen = ObservationRecord(width=8, height=6, title=title)
            writer.add_step(Step(index=index, observation=seen, output=output), png(0))
    kept = [step.output and step.output.prompt_ids for step in store.read(writer.info.id).steps]
    assert kept == [(3, 4), None, None]
    task = a_task(1).model_copy(update={"text": "Log in with hunter2"})
    with store.begin(task, POLICY, ENVIRONMENT) as writer:
        writer.add_step(Step(index=0, observation=ObservationRecord(width=8, height=6), output=output), png(0))
    [step] = store.read(writer.info.id).steps
    assert step.output is not None
    assert step.output.prompt_ids is None


# ---- schema ----


def test_the_sample_store_reads_as_it_was_written() -> None:
    """Written by the first version with schema 1. If this fails, old stores have become unreadable: never change it."""
    store = EpisodeStore(SAMPLE)
    assert store.check() == []
    first, second, third = store.list_episodes()
    assert (first.task, first.policy, first.environment) == (a_task(0), POLICY, ENVIRONMENT)
    assert (first.started, first.ended, first.outcome) == (1000.5, 2000.25, an_outcome(0))
    assert second.outcome == Outcome(reason="infrastructure", detail="the browser crashed")
    assert not third.finished
    for info, count in ((first, 3), (second, 0), (third, 1)):
        steps = store.read(info.id).steps
        assert len(steps) == count
        for step in steps:
            assert step.observation.image is not None
            store.image(step.observation.image)
            expected = a_step(info.task.seed or 0, step.index)
            seen = expected.observation.model_copy(update={"image": step.observation.image})
            assert step == expected.model_copy(update={"observation": seen})
            assert step.action is not None
            step.action.parse()
    assert encode(first, schema=1) == (SAMPLE / "episodes" / first.id / "meta.json").read_bytes()


def test_a_newer_schema_is_a_clear_error(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path)
    info = write_task(store, 0)
    path = tmp_path / "episodes" / info.id / "meta.json"
    path.write_text(path.read_text().replace(f'"schema":{SCHEMA}', f'"schema":{SCHEMA + 1}'))
    for use in (lambda: store.read(info.id), store.list_episodes, lambda: write_task(store, 0)):
        with pytest.raises(
            NewerSchema,
            match=rf"meta\.json has schema {SCHEMA + 1}, and this version reads up to {SCHEMA}; install",
        ):
            use()


# ---- speed ----


def test_ten_thousand_episodes_are_listed_quickly(folder: Path) -> None:
    info = EpisodeInfo(
        id="x",
        task=a_task(0),
        policy=POLICY,
        environment=ENVIRONMENT,
        started=1.0,
        ended=2.0,
        outcome=an_outcome(0),
        step_count=3,
        steps_bytes=9,
        steps_sha256="0" * 64,
    )
    for number in range(10_000):
        name = f"episode-{number:05}"
        (folder / "episodes" / name).mkdir(parents=True)
        meta = encode(info.model_copy(update={"id": name}), schema=SCHEMA)
        (folder / "episodes" / name / "meta.json").write_bytes(meta)
    store = EpisodeStore(folder)
    seconds = []
    for _ in range(2):
        start = time.process_time()
        assert len(store.list_episodes()) == 10_000
        seconds.append(time.process_time() - start)
    assert min(seconds) < 2.0  # the work itself; what else runs on the machine is not counted
