"""Data sets in the layouts of others become episodes, in the space they are in; what is wrong is named and left out."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holotron.actions.action import Answer, Click, Drag, Press, Scroll, Type
from holotron.agent.policy_format import find_format
from holotron.episodes.datasets import records
from holotron.episodes.datasets.exporter import DatasetFormat, export_dataset
from holotron.episodes.datasets.importer import PROBLEMS, ImportReport, import_dataset, read_report
from holotron.episodes.datasets.pictures import find_image
from holotron.episodes.datasets.records import BadRecord, DatasetError, SourceFile, read_records
from holotron.episodes.datasets.settings import ImportSettings
from holotron.episodes.datasets.spaces import SeenNumbers, find_space, space_of
from holotron.episodes.record import Episode
from holotron.episodes.selection import Selection
from holotron.episodes.store import EpisodeStore
from holotron.episodes.views import View

from . import dataset_files as made

Make = Callable[[Path], Path]


def bring_in(layout: str, source: Path, out: Path, **settings: Any) -> tuple[ImportReport, dict[str, Episode]]:
    """The report, and the episodes by their instructions."""
    report = import_dataset(ImportSettings(layout, source, **settings), out)
    store = EpisodeStore(out)
    assert store.check() == []
    episodes = [store.read(info.id) for info in store.list_episodes()]
    assert len(episodes) == report.episodes
    return report, {episode.task.text: episode for episode in episodes}


def done(episode: Episode) -> list[Any]:
    return [step.action.parse() if step.action else None for step in episode.steps]


def content(folder: Path) -> set[tuple[Any, ...]]:
    """What episodes say, without where they are from."""
    store = EpisodeStore(folder)
    return {
        (
            info.task.text,
            tuple((s.observation.image, s.action and s.action.text, s.thought, s.actor) for s in store.steps(info.id)),
        )
        for info in store.list_episodes()
    }


# ---- layouts ----


def test_agentnet(tmp_path: Path) -> None:
    report, found = bring_in("agentnet", made.agentnet(tmp_path / "source"), tmp_path / "out")
    assert (report.settings["space"], report.detected, report.episodes, report.cut) == ("0..1", ["space"], 3, 1)
    whole = found["Sort table 0"]
    assert done(whole)[:2] == [Click(x=163, y=271), whole.steps[1].action and whole.steps[1].action.parse()]
    assert done(whole)[2:6] == [
        Type(text="12.5"),
        Press(keys="Control+S"),
        Scroll(direction="down"),
        Drag(x=200, y=200, to_x=750, to_y=500),
    ]
    assert done(whole)[-1] == Answer(text="")
    assert [(s.note, s.thought, s.actor) for s in whole.steps[:1]] == [("screen 0", "because 0", "teacher")]
    assert whole.task.extra["task_id"] == "2024_0"
    assert [step.actor for step in found["Sort table 1"].steps] == ["disturbance", "teacher"]
    cut = found["Sort table 2"]  # before the key that is held down
    assert (len(cut.steps), cut.outcome and cut.outcome.success) == (1, False)


def test_scalecua_steps_become_trajectories(tmp_path: Path) -> None:
    report, found = bring_in("llava", made.scalecua(tmp_path / "source"), tmp_path / "out", thoughts="short")
    assert (report.settings["space"], report.settings["answers"]) == ("0..1", "pyautogui")
    assert report.unsupported == {"no words for it": 1}
    assert report.examples["no words for it"][0].startswith("steps.jsonl:4: ")
    joined = found["Find War and Peace"]
    assert done(joined) == [Click(x=367, y=919), Type(text="War")]
    assert [step.thought for step in joined.steps] == ["Open the library", "Type it"]
    alone = found["Send it\nPrevious operations:\nStep 1: Something else"]
    assert done(alone) == [Click(x=900, y=100)]


def test_aguvis_both_stages(tmp_path: Path) -> None:
    report, found = bring_in("llava", made.aguvis(tmp_path / "source"), tmp_path / "out")
    assert report.names == {"grounding": 4, "trajectory": 1}
    assert done(found["the search box"]) == [Click(x=123, y=500)]
    assert done(found["the close button"]) == [Click(x=990, y=20)]
    images = {text: episode.steps[0].observation.image for text, episode in found.items()}
    assert images["the search box"] == images["the close button"] != images["the second menu"]
    [step] = found["buy buns"].steps
    assert (step.thought, step.action and step.action.parse()) == ("It is below.", Scroll(direction="down", amount=30))


def test_openai_messages(tmp_path: Path) -> None:
    report, found = bring_in("openai", made.openai(tmp_path / "source"), tmp_path / "out")
    assert report.settings["space"] == "0..1000"
    whole = found["log in"]
    assert done(whole) == [Click(x=250, y=300), Type(text="ada"), Answer(text="in")]
    assert [step.actor for step in whole.steps] == ["teacher", "disturbance", "teacher"]
    assert (whole.steps[0].note, whole.steps[0].thought) == ("a form", "the name first")
    assert done(found["press Save"]) == [Click(x=900, y=40)]


@pytest.mark.parametrize(
    ("form", "space", "boxes"), [("v2", "pixels", "xywh"), ("pro", "pixels", "xyxy"), ("hub", "0..1", "xyxy")]
)
def test_screenspot_conventions_are_told_apart(tmp_path: Path, form: str, space: str, boxes: str) -> None:
    report, found = bring_in("screenspot", made.screenspot(tmp_path / "source", form).parent, tmp_path / "out")
    assert (report.settings["space"], report.settings["boxes"]) == (space, boxes)
    assert set(report.names) == ({"linux-icon"} if form == "pro" else {"desktop-text", "desktop-icon"})
    assert found["element 0"].task.extra["box"] == "100,50,300,90"
    assert done(found["element 0"]) == [Click(x=167, y=117)]
    [click] = done(found["element 1"])
    assert (abs(click.x - 954) <= 1, abs(click.y - 950) <= 1) == (True, True)


# ---- spaces ----


def numbers(*points: tuple[float, float], size: tuple[int, int] = (1920, 1080), **more: Any) -> SeenNumbers:
    return SeenNumbers(size, more.get("stated"), points, more.get("box"))


def test_a_space_is_detected_where_that_is_certain() -> None:
    def found(*seen: SeenNumbers, bad: float = 0.0) -> str:
        return find_space(seen, None, None, bad)[0]

    assert found(numbers((0.5, 0.25))) == "0..1"
    assert found(numbers((1500, 900))) == "pixels"  # beyond 1000
    assert found(numbers((900, 990), size=(800, 600))) == "0..1000"  # beyond the picture
    assert found(numbers((10, 10), size=(1000, 1000))) == "pixels"  # which is the same
    many = [numbers((0.5, 0.25))] * 99
    assert found(*many, numbers((300, 20)), bad=0.02) == "0..1"
    for unclear in ([numbers((500, 300))], [numbers((0, 1))], [numbers((500, 300), stated=(960, 540))]):
        with pytest.raises(DatasetError, match=r"could be pixels or 0\.\.1000.*say --space$"):
            found(*unclear)
    with pytest.raises(
        DatasetError, match=r"outside their pictures in every space .*where they are pixels of a resized"
    ):
        found(numbers((2500, 900)))
    with pytest.raises(DatasetError, match=r"say --boxes$"):
        find_space([numbers(box=(10, 10, 30, 40))], "pixels", None, 0.0)


def test_points_of_resized_images() -> None:
    """A model's own size, a stated one, one that the user names: the same place of the picture."""
    rule = find_format("ui-tars").image_rule
    assert rule is not None
    width, height = rule.resized((1920, 1080))
    for spec, point in (
        ("ui-tars", (width / 2, height / 4)),
        ("640x360", (320, 90)),
        ("stated", (50, 25)),
        ("pixels", (960, 270)),
        ("0..1", (0.5, 0.25)),
        ("0..1000", (500, 250)),
    ):
        x, y = space_of(spec, (1920, 1080), (100, 100)).to_relative(*point)
        near = 5 if spec == "stated" else 2  # a pixel of so small a picture is ten of these
        assert abs(x - 500) <= near
        assert abs(y - 250) <= near
        with pytest.raises(ValueError, match="outside the picture"):
            space_of(spec, (1920, 1080), (100, 100)).to_relative(point[0] * 2.1, point[1])


# ---- what is wrong ----


def test_what_is_bad_is_named_and_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    path = made.agentnet(source)
    (source / "images" / "cut.png").write_bytes(made.picture(1)[:-200])
    (source / "images" / "text.png").write_text("no picture")
    (tmp_path / "secret.png").write_bytes(made.picture(9))
    (source / "images" / "link.png").symlink_to(tmp_path / "secret.png")
    good = json.loads(path.read_text().splitlines()[0])

    def bad(number: int, code: str = "pyautogui.click(x=0.5, y=0.5)", **step: Any) -> dict[str, Any]:
        task = made.agentnet_task(number, code)
        task["traj"][0] |= step
        return task

    lines = [
        good,
        bad(10, "pyautogui.click(x=1.5, y=0.5)"),
        bad(11, "hello there"),
        bad(12, image="none.png"),
        bad(13, image="cut.png"),
        bad(14, image="text.png"),
        bad(15, image="../../secret.png"),
        bad(16, image=str(tmp_path / "secret.png")),
        bad(17, image="link.png"),
        bad(18, image="https://example.com/x.png"),
        {"task_id": "x", "instruction": "", "traj": [{}]},
        {"instruction": "no steps"},
        ["no record"],
        good,
    ]
    made.write_jsonl(path, lines)
    with path.open("a") as file:
        file.write('{"instruction": \n' + "[" * 100_000 + "\n")
    with pytest.raises(DatasetError, match=r"87\.5% of the records are bad, and 2% may be.*agentnet_ubuntu.jsonl:\d+"):
        import_dataset(ImportSettings("agentnet", path, space="0..1"), tmp_path / "out")
    told = [json.loads(line) for line in (tmp_path / "out" / PROBLEMS).read_text().splitlines()]
    assert sorted((int(each["where"].partition(":")[2]), each["kind"]) for each in told) == [
        (2, "point outside"),
        (3, "answer not understood"),
        (4, "image missing"),
        (5, "image damaged"),
        (6, "image damaged"),
        (7, "image outside"),
        (8, "image outside"),
        (9, "image outside"),
        (10, "image not here"),
        (11, "no instruction"),
        (12, "not a record"),
        (13, "not a record"),
        (14, "duplicate"),
        (15, "broken JSON"),
        (16, "broken JSON"),
    ]
    report, found = bring_in("agentnet", path, tmp_path / "out", most_bad=0.9)
    assert (report.already, list(found), report.duplicates) == (1, ["Sort table 0"], 1)


def test_boxes_that_are_turned_over_or_outside(tmp_path: Path) -> None:
    path = made.screenspot(tmp_path / "source", "pro")
    good = json.loads(path.read_text())
    turned, outside, short = ({**good[0], "instruction": text} for text in ("turned", "outside", "short"))
    turned["bbox"], outside["bbox"], short["bbox"] = [300, 50, 100, 90], [1100, 10, 1300, 20], [1, 2, 3]
    path.write_text(json.dumps([*good, turned, outside, short]))
    report, _ = bring_in("screenspot", path, tmp_path / "out", most_bad=0.5, space="pixels", boxes="xyxy")
    assert report.bad == {"bad box": 2, "point outside": 1}
    assert report.examples["point outside"] == [
        "photoshop_linux.json[5]: step 0: the point (1300, 20) is outside the picture of 1200×600"
    ]


def test_conversations_with_wrong_roles_or_marks(tmp_path: Path) -> None:
    source = tmp_path / "source"
    made.write_images(source, "a.png")
    ask, say = {"from": "human", "value": "<image>\nit"}, {"from": "gpt", "value": "pyautogui.click(x=0.5, y=0.5)"}
    lines: list[Any] = [
        {"image": "a.png", "conversations": [ask, say]},
        {"image": "a.png", "conversations": [say, ask]},
        {"image": "a.png", "conversations": [{"from": "boss", "value": "go"}, say]},
        {"image": ["a.png", "a.png"], "conversations": [ask, say]},
        {"image": "a.png", "conversations": [{"from": "human", "value": "<image>"}, say]},
        {"conversations": [{"from": "human", "value": "where?"}, say]},
    ]
    path = made.write_jsonl(source / "x.jsonl", lines)
    report, found = bring_in("llava", path, tmp_path / "out", most_bad=0.9)
    assert list(found) == ["it"]
    assert (report.bad, report.unsupported) == (
        {"wrong roles": 2, "wrong marks": 1, "no instruction": 1},
        {"no screenshot": 1},
    )


def test_a_record_that_names_no_known_format_is_bad(tmp_path: Path) -> None:
    path = made.openai(tmp_path / "source")
    first = json.loads(path.read_text().splitlines()[0])
    made.write_jsonl(path, [first, {**first, "metadata": {"policy_format": "songs", "task": "sing"}}])
    report, found = bring_in("openai", path, tmp_path / "out", most_bad=0.5)
    assert (list(found), report.bad) == (["log in"], {"not a record": 1})


def test_answers_that_can_be_read_in_two_ways_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    made.write_images(source, "a.png", size=(1600, 900))
    arguments = {"action": "left_click", "coordinate": [800, 450]}
    call = f"<tool_call>\n{json.dumps({'name': 'computer_use', 'arguments': arguments})}\n</tool_call>"
    path = made.write_jsonl(source / "x.jsonl", [{"messages": [made.user("Save", "a.png"), made.assistant(call)]}])
    with pytest.raises(DatasetError, match=r"can be read as qwen.* or qwen.*say --answers"):
        import_dataset(ImportSettings("openai", path), tmp_path / "out")
    clicks = [
        done(bring_in("openai", path, tmp_path / name, answers=name)[1]["Save"])[0]
        for name in ("qwen-vl", "qwen2.5-vl")
    ]
    assert clicks[0] == Click(x=800, y=450)
    assert abs(clicks[1].x - 500) <= 2
    words = made.write_jsonl(source / "y.jsonl", [{"messages": [made.user("Save", "a.png"), made.assistant("Sure!")]}])
    with pytest.raises(DatasetError, match=r"in no form that is known .*such as 'Sure!'"):
        import_dataset(ImportSettings("openai", words), tmp_path / "none")


def test_long_lines_and_long_lists_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_BYTES", 2000)
    monkeypatch.setattr(records, "CHUNK", 64)
    lines = tmp_path / "x.jsonl"
    lines.write_text('{"a": 1}\n' + json.dumps({"b": "x" * 5000}) + '\n\n{"c": 3}')
    found = list(read_records(SourceFile(lines, tmp_path)))
    assert [(each.where, each.value, each.problem is not None) for each in found] == [
        ("x.jsonl:1", {"a": 1}, False),
        ("x.jsonl:2", None, True),
        ("x.jsonl:4", {"c": 3}, False),
    ]
    values = [{"n": number, "text": "é" * (number * 7)} for number in range(40)] + [12345, "a]b"]
    listed = tmp_path / "x.json"
    listed.write_text(json.dumps(values, indent=1, ensure_ascii=False))
    assert [each.value for each in read_records(SourceFile(listed, tmp_path))] == values
    listed.write_text('[{"n": 1}, {"n": 2}, oops')
    *good, broken = read_records(SourceFile(listed, tmp_path))
    assert [each.value for each in good] == [{"n": 1}, {"n": 2}]
    assert (broken.where, broken.problem is not None) == ("x.json[2]", True)


JUNK: list[Any] = [
    None, True, -1, 1e308, "", "<image>", "\ud800", [], {}, [1, 2], [[]], {"url": {"url": 1}}, "x" * 300, 10**30,
    "pyautogui.click(x=1e400, y=0)", "data:image/png;base64,AAAA", "data:image/png;base64,%", "a\0b", "click(",
]  # fmt: skip


def spoiled(value: Any, chance: random.Random) -> Any:
    """The value with junk at some place of it."""
    if isinstance(value, dict | list) and value and chance.random() < 0.9:
        key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
        changed = value.copy()
        changed[key] = spoiled(value[key], chance)
        return changed
    return chance.choice(JUNK)


@pytest.mark.parametrize(
    ("layout", "make"),
    [("agentnet", made.agentnet), ("llava", made.aguvis), ("openai", made.openai), ("screenspot", made.screenspot)],
)
def test_whatever_stands_in_a_record_it_is_an_episode_or_named(tmp_path: Path, layout: str, make: Make) -> None:
    path, chance = make(tmp_path / "source"), random.Random(0)
    good = [record.value for record in read_records(SourceFile(path, path.parent))]
    bad = [spoiled(chance.choice(good), chance) for _ in range(150)]
    made.write_jsonl(path, good + bad)
    said: dict[str, dict[str, Any]] = {
        "screenspot": {"space": "pixels", "boxes": "xywh"},
        "openai": {"answers": "nano"},
    }
    settings = said.get(layout, {"space": "0..1", "answers": "pyautogui"})
    report, _ = bring_in(layout, path, tmp_path / "out", most_bad=0.99, **settings)
    told = (tmp_path / "out" / PROBLEMS).read_text().splitlines()
    assert len(told) == report.bad.total() + report.unsupported.total() + report.duplicates > 20


@pytest.mark.parametrize(
    "name", ["../x.png", "a/../../x.png", "/etc/passwd", "file:///etc/passwd", "..\\x.png", "a\0b"]
)
def test_nothing_outside_the_folder_is_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "x.png").write_bytes(b"x")
    with pytest.raises(BadRecord, match="is not below"):
        find_image(tmp_path / "in", name)


def test_a_folder_belongs_to_one_import(tmp_path: Path) -> None:
    path = made.agentnet(tmp_path / "source")
    bring_in("agentnet", path, tmp_path / "out")
    with pytest.raises(DatasetError, match=r"other settings \(space '0\.\.1'\)"):
        import_dataset(ImportSettings("agentnet", path, space="pixels"), tmp_path / "out")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(DatasetError, match="is not empty and no import"):
        import_dataset(ImportSettings("agentnet", path), tmp_path / "other")
    with pytest.raises(DatasetError, match=r"is inside .*which is read"):
        import_dataset(ImportSettings("agentnet", tmp_path / "source"), tmp_path / "source" / "out")


# ---- killed ----

KILLED = """
import os, signal, sys
from pathlib import Path
from holotron.episodes import transfer
from holotron.episodes.datasets import importer
from holotron.episodes.datasets.settings import ImportSettings
from holotron.episodes.writer import EpisodeWriter
at, added = int(sys.argv[3]), EpisodeWriter.add_step
count = 0
def add(self, *arguments):
    global count
    count += 1
    if count == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return added(self, *arguments)
EpisodeWriter.add_step = add
importer.import_dataset(ImportSettings("agentnet", Path(sys.argv[1])), Path(sys.argv[2]))
"""


def test_an_import_that_was_killed_goes_on(tmp_path: Path) -> None:
    path, out = made.agentnet(tmp_path / "source"), tmp_path / "out"
    found = subprocess.run([sys.executable, "-c", KILLED, path, out, "10"], check=False, timeout=120, env=os.environ)
    assert found.returncode == -signal.SIGKILL
    first = EpisodeStore(out).list_episodes(finished=True)
    assert len(first) == 1
    assert (read_report(out) or {})["finished"] is False
    report, episodes = bring_in("agentnet", path, out)
    assert (report.already, report.episodes, len(episodes)) == (1, 3, 3)
    assert (read_report(out) or {})["finished"] is True
    import_dataset(ImportSettings("agentnet", path), tmp_path / "whole")
    assert content(out) == content(tmp_path / "whole")


# ---- there and back ----


@pytest.mark.parametrize(
    ("layout", "make", "format", "words", "images"),
    [
        ("agentnet", made.agentnet, "openai", "json", "embed"),
        ("agentnet", made.agentnet, "llava", "json", "reference"),
        ("llava", made.scalecua, "openai", "holotron", "reference"),
        ("llava", made.scalecua, "llava", "json", "embed"),
        ("screenspot", made.screenspot, "screenspot", "json", "embed"),
        ("screenspot", made.screenspot, "openai", "ui-tars", "embed"),
    ],
)
def test_out_and_in_again(
    tmp_path: Path, layout: str, make: Make, format: DatasetFormat, words: str, images: Any
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    bring_in(layout, make(tmp_path / "source"), first, thoughts="none" if words != "json" else "short")
    (tmp_path / "out").mkdir()
    file = tmp_path / "out" / "data.jsonl"
    count = export_dataset(EpisodeStore(first), file, format, find_format(words), images=images, successes=False)
    assert count > 0
    bring_in(format, file, second, images=first if images == "reference" else None, thoughts="full")
    before, after = content(first), content(second)
    if words == "ui-tars":  # whose points are pixels
        assert {text for text, _ in before} == {text for text, _ in after}
        for (_, [(image, was, *_)]), (_, [(same, now, *_)]) in zip(sorted(before), sorted(after), strict=True):
            assert image == same
            assert all(abs(json.loads(was)[axis] - json.loads(now)[axis]) <= 1 for axis in "xy")
        return
    if format == "llava":  # where a step is not imitated, what was before it is told in words
        before = {each for each in before if all(step[-1] == "teacher" for step in each[1])}
    assert before <= after


def test_a_view_writes_an_import_in_any_format(tmp_path: Path) -> None:
    bring_in("agentnet", made.agentnet(tmp_path / "source"), tmp_path / "out", thoughts="none")
    view = View([tmp_path / "out"], policy_format=find_format("nano"))
    examples = [view[index] for index in range(len(view))]
    assert [example.kind for example in examples] == ["agentnet/trajectory"] * 2  # the third was not completed
    [whole] = [example for example in examples if len(example.turns) == 8]
    assert whole.turns[0].answer == '{"action":"click","x":163,"y":271}'
    [other] = [example for example in examples if len(example.turns) == 2]
    assert [turn.learn for turn in other.turns] == [False, True]
    view = View([tmp_path / "out"], policy_format=find_format("ui-tars"))
    answers = [turn.answer for index in range(len(view)) for turn in view[index].turns]
    assert "Thought: \nAction: click(point='<point>63 60</point>')" in answers
    everything = View([tmp_path / "out"], replace(Selection(), successes=False))
    assert len(everything) == 3


def test_a_step_with_its_history_goes_out_and_in(tmp_path: Path) -> None:
    """A format that is sent the last screenshots has an example for every step, of which the last answer is learned."""
    bring_in("agentnet", made.agentnet(tmp_path / "source"), tmp_path / "first", thoughts="none")
    file = tmp_path / "chat.jsonl"
    count = export_dataset(EpisodeStore(tmp_path / "first"), file, "openai", find_format("ui-tars"))
    report, found = bring_in("openai", file, tmp_path / "second")
    assert report.episodes == count == 8 + 1  # the third was not completed
    store = EpisodeStore(tmp_path / "second")
    actors = sorted([step.actor for step in store.steps(info.id)] for info in store.list_episodes())
    assert all(each[-1] == "teacher" and each.count("teacher") == 1 for each in actors)
    assert max(map(len, actors)) == 5  # screenshots that the format shows
    assert set(found) == {"Sort table 0", "Sort table 1"}
