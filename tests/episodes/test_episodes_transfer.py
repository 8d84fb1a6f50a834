"""Episodes out of one store and into another: Parquet loses nothing, the others what they say."""

from __future__ import annotations

import base64
import io
import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseComputerToolCall, ResponseInputItem
from PIL import Image
from pydantic import TypeAdapter

from holotron.actions.action import Action, Answer, Click, Drag, Goto, Press, Refresh, Scroll, Type, Wait
from holotron.episodes import parquet
from holotron.episodes.errors import Damaged, EpisodeError, NewerSchema
from holotron.episodes.record import SCHEMA, EpisodeInfo, ObservationRecord, Outcome, Result, Step, StepAction
from holotron.episodes.store import EpisodeStore
from holotron.episodes.transfer import Format, copy_in, export, import_
from tests.episodes.samples import ENVIRONMENT, POLICY, a_step, a_task, an_outcome, episodes, png, write_task

LINES: list[Format] = ["responses", "browsergym", "uitars"]


# ---- Parquet ----


@settings(deadline=None, max_examples=25)
@given(st.data(), st.sampled_from(["embed", "reference"]))
def test_parquet_loses_nothing(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, images: Any) -> None:
    folder = tmp_path_factory.mktemp("stores")
    source, target = EpisodeStore(folder / "a", sync="never"), EpisodeStore(folder / "b", sync="never")
    for number in range(data.draw(st.integers(0, 3))):
        copy_in(source, *data.draw(episodes(number)))
    infos = source.list_episodes()
    assert export(source, folder / "x.parquet", "parquet", images=images, episodes=infos) == len(infos)
    assert import_(folder / "x.parquet", target, "parquet", images=source.images) == [info.id for info in infos]
    assert target.list_episodes() == infos
    for info in infos:
        assert target.read(info.id) == source.read(info.id)
    assert target.check() == []
    again = import_(folder / "x.parquet", target, "parquet", images=source.images)
    assert again == [info.id for info in infos if not info.finished]
    shutil.rmtree(folder)


def test_parquet_has_columns_to_ask_for(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path / "a")
    for number in range(3):
        write_task(store, number)
    store.begin(a_task(9), POLICY, ENVIRONMENT).close()
    assert export(store, tmp_path / "x.parquet", "parquet") == 3  # the finished ones
    table = pq.read_table(tmp_path / "x.parquet")
    assert table.num_rows == 9
    rows = table.to_pylist()
    assert [row["step"] for row in rows] == [0, 1, 2] * 3
    assert rows[3]["task_name"] == "click-1"
    assert rows[3]["success"] is False
    assert rows[0]["action"] == '{"action":"click","x":0,"y":0}'
    assert rows[0]["token_ids"] == [1, 2, 3]
    assert rows[0]["actor"] == "policy"
    assert rows[0]["image"] == png(0)


def test_parquet_of_the_first_schema_is_read(tmp_path: Path) -> None:
    """Files from before a step said who acted have fewer columns."""
    store, target = EpisodeStore(tmp_path / "a"), EpisodeStore(tmp_path / "b")
    write_task(store, 0)
    export(store, tmp_path / "x.parquet", "parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    old = table.drop_columns(["actor", "teacher", "prompt_ids", "model_logprobs", "forced"])
    pq.write_table(old.replace_schema_metadata({parquet.SCHEMA_KEY: b"1"}), tmp_path / "old.parquet")
    [name] = import_(tmp_path / "old.parquet", target, "parquet")
    assert target.read(name) == store.read(name)


def test_a_failure_of_the_infrastructure_gives_way_to_a_good_episode_alone(tmp_path: Path) -> None:
    good, failed = EpisodeStore(tmp_path / "good"), EpisodeStore(tmp_path / "failed")
    info = write_task(good, 0)
    with failed.begin(a_task(0), POLICY, ENVIRONMENT) as writer:
        writer.finish(Outcome(reason="infrastructure"))
    for store in (good, failed):
        export(store, store.folder / "x.parquet", "parquet")
    assert import_(failed.folder / "x.parquet", good, "parquet") == []
    assert import_(failed.folder / "x.parquet", failed, "parquet") == []
    assert import_(good.folder / "x.parquet", failed, "parquet") == [info.id]
    assert failed.read(info.id) == good.read(info.id)
    assert failed.check() == []


def test_parquet_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", 300_000)
    source, target = EpisodeStore(tmp_path / "a", sync="never"), EpisodeStore(tmp_path / "b", sync="never")
    total = 0
    with source.begin(a_task(0), POLICY, ENVIRONMENT) as writer:
        for index in range(150):
            image = noise(index)
            total += len(image)
            writer.add_step(Step(index=index, observation=ObservationRecord(width=160, height=210)), image)
        writer.finish(an_outcome(0))
    assert total > 14_000_000
    original = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(original)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    export(source, tmp_path / "x.parquet", "parquet")
    import_(tmp_path / "x.parquet", target, "parquet")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    pa.set_memory_pool(original)
    assert pool.max_memory() < 5_000_000
    assert pq.ParquetFile(tmp_path / "x.parquet").num_row_groups > 10
    assert peak < 5_000_000
    assert target.read(writer.info.id) == source.read(writer.info.id)


def noise(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((160, 210), 40 + seed).convert("RGB").resize((160, 210)).save(buffer, "PNG", compress_level=0)
    return buffer.getvalue()


def test_damaged_parquet_is_named(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path / "a")
    write_task(store, 0)
    path = tmp_path / "x.parquet"
    export(store, path, "parquet")
    whole = path.read_bytes()
    target = EpisodeStore(tmp_path / "b")
    for damage in (b"", whole[: len(whole) // 2], b"PAR1" + bytes(100) + b"PAR1"):
        path.write_bytes(damage)
        with pytest.raises(Damaged, match=r"x\.parquet is not a whole Parquet file"):
            import_(path, target, "parquet")
    table = pq.read_table(io.BytesIO(whole))
    pq.write_table(table.drop_columns(["step_json"]), path)
    with pytest.raises(Damaged, match=r"was not written by an export of episodes; it lacks \['step_json'\]"):
        import_(path, target, "parquet")
    pq.write_table(table.slice(1), path)
    with pytest.raises(Damaged, match=r"row 1 belongs to the episode .* whose first row is not there"):
        import_(path, target, "parquet")
    pq.write_table(table.replace_schema_metadata({parquet.SCHEMA_KEY: b"9"}), path)
    with pytest.raises(NewerSchema, match=r"x\.parquet has schema 9"):
        import_(path, target, "parquet")
    position = table.column_names.index("step_json")
    values = table.column("step_json").to_pylist()
    broken = table.set_column(position, "step_json", [[values[0], "{}", values[2]]])
    pq.write_table(broken.replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(Damaged, match="row 2, step_json is not valid"):
        import_(path, target, "parquet")
    assert target.list_episodes(finished=True) == []
    assert not list(tmp_path.glob(".*.partial"))


# ---- lines ----

STEPS: list[Action | None] = [
    Goto(url="https://example.com/"),
    Click(x=500, y=250, element="the button"),
    None,
    Type(text='it\'s "é"', x=100, y=900, clear=True, enter=True),
    Scroll(direction="down", amount=50, x=100, y=900),
    Press(keys="Control+C", repeat=2),
    Drag(x=0, y=0, to_x=999, to_y=999),
    Answer(text="no"),
    Wait(seconds=2),
    Answer(text="42"),
]


def an_episode(store: EpisodeStore) -> EpisodeInfo:
    with store.begin(a_task(0), POLICY, ENVIRONMENT, started=5.0) as writer:
        for index, action in enumerate(STEPS):
            seen = ObservationRecord(width=1200, height=1001, url="http://x/", tabs=("http://x/", "http://y/"))
            step = Step(
                index=index,
                observation=seen,
                thought=f"thought {index}\nand more",
                action=action and StepAction.of(action, 1200, 1001),
                result=Result(ok=action is not None, error="" if action else "not understood", reward=0.5),
                feedback="look again" if action == Answer(text="no") else None,
            )
            writer.add_step(step, png(index, 1200, 1001))
        return writer.finish(an_outcome(0), ended=9.0)


@pytest.mark.parametrize("format", LINES)
@pytest.mark.parametrize("images", ["embed", "reference"])
def test_lines_there_and_back(tmp_path: Path, format: Format, images: Any) -> None:
    source, target = EpisodeStore(tmp_path / "a"), EpisodeStore(tmp_path / "b")
    info = an_episode(source)
    write_task(source, 1)
    path = tmp_path / "x.jsonl"
    export(source, path, format, images=images)
    assert len(path.read_text().splitlines()) == 2
    found = import_(path, target, format, images=source.images)
    assert found == [each.id for each in source.list_episodes()]
    assert import_(path, target, format, images=source.images) == []
    before, after = source.read(info.id), target.read(info.id)
    assert after.model_copy(update={"steps": ()}) == before.model_copy(update={"steps": ()})
    assert len(after.steps) == len(before.steps)
    for old, new in zip(before.steps, after.steps, strict=True):
        assert new.observation.image == old.observation.image
        assert (new.observation.width, new.observation.height) == (1200, 1001)
        assert (new.thought, new.feedback) == (old.thought, old.feedback)
        assert (new.action is None) == (old.action is None)
        if old.action is not None and new.action is not None:
            assert new.action.space == "pixels"
            assert near(old.action.parse(), new.action.parse(), format), (old.action, new.action)
        if format == "browsergym":
            assert (new.result, new.observation.url, new.observation.tabs) == (
                old.result,
                old.observation.url,
                old.observation.tabs,
            )


def near(old: Action, new: Action, format: Format) -> bool:
    a, b = old.model_dump(exclude={"element"}), new.model_dump(exclude={"element"})
    if format != "browsergym" and isinstance(old, Wait):
        return isinstance(new, Wait)
    for axis in ("x", "y", "to_x", "to_y"):
        if abs((a.pop(axis, 0) or 0) - (b.pop(axis, 0) or 0)) > 1:
            return False
    return a == b


def test_openai_items_are_what_the_api_takes(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path / "a")
    an_episode(store)
    export(store, tmp_path / "x.jsonl", "responses")
    items = json.loads((tmp_path / "x.jsonl").read_text())["steps"]
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseInputItem)
    for item in items:
        adapter.validate_python(item)
    calls = [ResponseComputerToolCall.model_validate(item) for item in items if item["type"] == "computer_call"]
    answered = {item["call_id"] for item in items if item["type"] == "computer_call_output"}
    assert len(calls) == 7
    assert answered == {call.call_id for call in calls}
    assert items[0]["content"][0] == {"type": "input_text", "text": a_task(0).text}
    assert base64.b64decode(items[0]["content"][1]["image_url"].partition(",")[2]) == png(0, 1200, 1001)


def test_what_a_format_cannot_say_is_named(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path / "a")
    with store.begin(a_task(0), POLICY, ENVIRONMENT) as writer:
        step = a_step(0, 0).model_copy(update={"action": StepAction.of(Refresh(), 8, 6)})
        writer.add_step(step, png(0))
        info = writer.finish(Outcome(reason="done"))
    path = tmp_path / "x.jsonl"
    with pytest.raises(
        EpisodeError, match=f"the episode {info.id} cannot be written .*BrowserGym cannot express refresh"
    ):
        export(store, path, "browsergym")
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]
    with pytest.raises(EpisodeError, match="there is no format 'xml'; choose one of parquet"):
        export(store, path, "xml")  # type: ignore[arg-type]


@pytest.mark.parametrize("format", LINES)
def test_damaged_lines_are_named(tmp_path: Path, format: Format) -> None:
    source, target = EpisodeStore(tmp_path / "a"), EpisodeStore(tmp_path / "b")
    for number in range(3):
        write_task(source, number)
    path = tmp_path / "x.jsonl"
    export(source, path, format)
    lines = path.read_text().splitlines()

    def attempt(second: str) -> str:
        path.write_text("\n".join([lines[0], second, lines[2]]) + "\n")
        with pytest.raises(EpisodeError) as caught:
            import_(path, target, format)
        assert "x.jsonl:2" in str(caught.value)
        assert len(target.list_episodes(finished=True)) == 1
        return str(caught.value)

    assert "not valid JSON" in attempt(lines[1][:-20])
    assert "not an episode in the format" in attempt("{}")
    assert "not an episode in the format" in attempt("[]")
    assert "not valid JSON" in attempt("[" * 100_000)
    assert "has schema 7" in attempt(lines[1].replace(f'"schema": {SCHEMA}', '"schema": 7'))
    assert "has no schema number" in attempt(lines[1].replace(f'"schema": {SCHEMA}', '"schema": null'))
    assert "episode is not a valid EpisodeInfo" in attempt(lines[1].replace('"started"', '"begun"'))
    assert "steps" in attempt(lines[1].replace('"width"', '"breadth"'))
    assert "steps" in attempt(lines[1].replace("data:image/png;base64,", "data:image/png;base64,*"))
    assert "steps" in attempt(lines[1].replace("data:image/png;base64,", "https://somewhere/"))
    value = json.loads(lines[1])
    for broken in (None, 5, [5], [{}], [{"type": "message"}], ["x"]):
        attempt(json.dumps(value | {"steps": broken}))


def test_other_image_formats_become_png(tmp_path: Path) -> None:
    source, target = EpisodeStore(tmp_path / "a"), EpisodeStore(tmp_path / "b")
    write_task(source, 0, steps=1)
    path = tmp_path / "x.jsonl"
    export(source, path, "uitars")
    buffer = io.BytesIO()
    Image.new("RGB", (8, 6), (1, 2, 3)).save(buffer, "JPEG")
    value = json.loads(path.read_text())
    value["steps"][0]["image"] = "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
    path.write_text(json.dumps(value))
    [id_] = import_(path, target, "uitars")
    [step] = target.read(id_).steps
    with Image.open(io.BytesIO(target.image(step.observation.image or ""))) as image:
        assert (image.format, image.size) == ("PNG", (8, 6))
