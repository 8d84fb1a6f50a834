"""`holotron data`: what a user types, what comes of it, and what is said when it cannot."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from holotron.actions.action import Answer, Click
from holotron.cli import data, transfer
from holotron.cli.main import CommandGroup
from holotron.env.browser.pool import Browsers
from holotron.episodes.shards import read_shard, shard_paths
from holotron.episodes.store import EpisodeStore
from holotron.suites.pages.task import all_templates
from tests.env.driver import descendants
from tests.env.site import Site
from tests.episodes import dataset_files
from tests.episodes.samples import check_store, write_task
from tests.episodes.test_replay import START, record

app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)
app.add_typer(data.app, name="data")
app.command("other")(lambda: None)  # with a single command typer would leave out the name of the group
SAMPLES = Path(__file__).parents[1] / "episodes" / "sample_store"


def holo(*arguments):
    words = [str(argument) for argument in arguments]
    return CliRunner(env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"}).invoke(app, ["data", *words])


@pytest.fixture
def store(tmp_path):
    store = EpisodeStore(tmp_path / "store", sync="never")
    for number in range(3):
        write_task(store, number)
    return store


@pytest.mark.parametrize(
    "command", ["screens", "miniwob", "pages", "libraries", "fetch-libraries", "export", "import", "check", "replay"]
)
def test_help_has_an_example(command):
    result = holo(command, "--help")
    assert result.exit_code == 0
    assert any(line.strip().startswith(f"holotron data {command}") for line in result.stdout.splitlines())


def test_without_a_command_the_help_is_shown_as_misuse():
    result = holo()
    assert result.exit_code == 2
    assert all(
        command in result.stdout for command in ("screens", "miniwob", "pages", "export", "import", "check", "replay")
    )


@pytest.mark.parametrize("format", transfer.EPISODES)
@pytest.mark.parametrize("images", transfer.IMAGES)
def test_out_and_in_again(store, tmp_path, format, images):
    out, copy = tmp_path / "out", tmp_path / "copy"
    result = holo("export", store.folder, out, "--as", format, "--images", images)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "3 episodes written to" in result.stdout
    source = ["--images", store.folder] if images == "reference" else []
    result = holo("import", format, out, "--out", copy, "--json", *source)
    assert (result.exit_code, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert answer["imported"] == [info.id for info in store.list_episodes()]
    if format == "parquet":
        check_store(EpisodeStore(copy), 3)
    result = holo("import", format, out, "--out", copy, *source)
    assert (result.exit_code, result.stdout) == (0, f"0 episodes brought into {copy}\n")
    result = holo("check", copy, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"episodes": 3, "unfinished": 0, "problems": []})


def test_formats_are_those_there_are():
    from typing import get_args

    from holotron.episodes.datasets.exporter import DatasetFormat
    from holotron.episodes.datasets.layouts import LAYOUTS
    from holotron.episodes.transfer import Format

    assert get_args(Format) == transfer.EPISODES
    assert tuple(LAYOUTS) == transfer.LAYOUTS
    assert (*get_args(Format), *get_args(DatasetFormat)) == transfer.EXPORTS


def test_a_data_set_in_looked_at_and_out(tmp_path):
    source, out = dataset_files.agentnet(tmp_path / "source"), tmp_path / "out"
    result = holo("import", "agentnet", source, "--out", out, "--check", "--samples", "3")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"3 episodes with 11 steps in {out}; space 0..1 (detected)" in result.stdout
    assert f"look at {out / 'check.html'}" in result.stdout
    assert (out / "check.html").read_text().count('class="sample"') == 3
    result = holo("import", "agentnet", source, "--out", out, "--json")
    assert json.loads(result.stdout)["already"] == 3
    result = holo("check", out, "--page", tmp_path / "page.html", "--policy-format", "nano", "--json")
    assert json.loads(result.stdout)["page"] == str(tmp_path / "page.html")
    result = holo("export", out, tmp_path / "chat.jsonl", "--as", "openai", "--json")
    assert json.loads(result.stdout)["records"] == 2  # one was not completed
    result = holo("export", out, tmp_path / "chat.jsonl", "--as", "openai", "--json", "--failed")
    assert json.loads(result.stdout)["records"] == 3
    result = holo("import", "openai", tmp_path / "chat.jsonl", "--out", tmp_path / "again")
    assert "3 episodes with 11 steps" in result.stdout
    with source.open("a") as file:
        file.write("oops\n")
    result = holo("import", "agentnet", source, "--out", tmp_path / "bad", "--check")
    assert result.exit_code == 1
    assert "25.0% of the records are bad, and 2% may be: most often broken JSON (1), such as" in result.stderr
    assert "check.html" in result.stderr


def test_damage_is_listed_and_left_out(store, tmp_path):
    first, second, third = store.list_episodes()
    (store.folder / "episodes" / first.id / "meta.json").write_text("{")
    steps = store.folder / "episodes" / second.id / "steps.jsonl"
    steps.write_bytes(steps.read_bytes()[:-5])
    result = holo("check", store.folder)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    assert f"{first.id}/meta.json is not valid JSON" in lines[0]
    assert second.id in lines[1]
    assert lines[2] == "2 episodes, 0 unfinished, 2 problems"
    assert len(json.loads(holo("check", store.folder, "--json").stdout)["problems"]) == 2

    out = tmp_path / "out.parquet"
    result = holo("export", store.folder, out, "--format", "parquet")
    assert result.exit_code == 1
    assert second.id in result.stderr
    assert not out.exists()
    shutil.rmtree(steps.parent)
    result = holo("export", store.folder, out, "--format", "parquet", "--json")
    assert result.exit_code == 0
    assert result.stderr.startswith("left out: ")
    answer = json.loads(result.stdout)
    assert (answer["episodes"], len(answer["left_out"])) == (1, 1)
    assert third.id in (store.folder / "episodes" / third.id).name


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["export", "STORE", "OUT"], "--as"),
        (["export", "STORE", "OUT", "--as", "csv"], "'csv'; choose one of parquet, responses"),
        (["export", "STORE", "OUT", "--as", "openai", "--policy-format", "x"], "there is no policy format 'x'"),
        (["export", "STORE", "OUT", "--format", "openai", "--images", "no"], "--images is 'no'"),
        (["export", "OUT", "OUT", "--format", "openai"], "is no store"),
        (["export", "STORE", "STORE", "--format", "openai"], "it is a folder"),
        (["export", "STORE", "OUT/deeper/file", "--format", "openai"], "its folder is not there"),
        (["import", "openai", "OUT", "--out", "STORE"], "there is no file"),
        (["import", "x", "FILE", "--out", "STORE"], "FORMAT is 'x'"),
        (["import", "openai", "FILE", "--out", "FILE"], "is a file"),
        (["import", "responses", "FILE", "--out", "STORE", "--images", "OUT"], "is no store"),
        (["import", "llava", "FILE", "--out", "OUT", "--space", "metres"], "there is no space 'metres'; choose one of"),
        (["import", "llava", "FILE", "--out", "OUT", "--answers", "songs"], "answers is 'songs'; choose one of"),
        (["import", "screenspot", "FILE", "--out", "OUT", "--boxes", "yx"], "boxes is 'yx'; choose one of xywh, xyxy"),
        (["check", "OUT"], "is no store"),
        (["screens"], "say one of --out FOLDER, for shards, and --view"),
        (["screens", "--out", "OUT", "--mix", "widgets=1,films=2"], "there is no source films; known are widgets,"),
        (["screens", "--out", "OUT", "--mix", "widgets"], "'widgets'; write it like widgets=4,pages=3"),
        (["screens", "--out", "FILE"], "is a file"),
        (["screens", "--out", "OUT", "--folder", "OUT"], "does not exist"),
        (["miniwob", "click-buton", "--out", "OUT"], "there is no MiniWoB++ task 'click-buton'"),
        (["miniwob", "draw-circle", "--out", "OUT"], "draw-circle has no teacher; all tasks of miniwob have one but"),
        (["miniwob", "--split", "dev"], "there is no split 'dev' of miniwob; choose train or test"),
        (["miniwob", "--model", "holotron-nano"], "--model goes with --out"),
        (["miniwob", "click-test", "--out", "OUT", "--model", "./no/such"], "nor a preset; presets are holotron-12b"),
        (["miniwob", "click-test", "--out", "OUT", "--first-seed", "1000000000"], "is held out for evaluations"),
        (["pages", "nothing", "--out", "OUT"], "there is no task 'nothing' in pages; there are "),
        (["libraries", "bulma/nothing", "--out", "OUT"], "there is no task 'bulma/nothing' in libraries; there are "),
        (["libraries", "carbon/login", "--out", "OUT"], "is held out for evaluation; name its split"),
        (["pages", "HELD_OUT", "--out", "OUT"], "is held out for evaluation; name its split"),
        (["replay", "STORE", "nobody"], "there is no episode 'nobody'"),
        (["replay", "STORE", "EPISODE", "--tolerance", "2"], "--tolerance"),
        (["replay", "STORE", "EPISODE", "--allow", "example"], "'example' is no origin"),
        (["replay", "STORE", "EPISODE", "--out", "FILE"], "it must be a folder"),
    ],
)
def test_misuse_is_one_line(tmp_path, arguments, says):
    file = tmp_path / "file"
    file.touch()
    (episode, *_) = EpisodeStore(SAMPLES).list_episodes()
    held_out = all_templates(held_out=True)[0].name
    known = {
        "STORE": SAMPLES, "OUT": tmp_path / "out", "FILE": file, "EPISODE": episode.id, "HELD_OUT": held_out
    }  # fmt: skip
    words = [
        str(known[argument]) if argument in known else argument.replace("OUT/", f"{known['OUT']}/")
        for argument in arguments
    ]
    result = holo(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert says in result.stderr
    assert not (tmp_path / "out").exists()


def test_failures_are_one_line(tmp_path):
    empty = tmp_path / "empty"
    (empty / "episodes").mkdir(parents=True)
    result = holo("export", empty, tmp_path / "out", "--format", "parquet")
    assert result.exit_code == 1
    assert "no finished episode" in result.stderr
    file = tmp_path / "file.jsonl"
    file.write_text("nonsense\n")
    for format in (*transfer.EPISODES, *transfer.LAYOUTS):
        result = holo("import", format, file, "--out", tmp_path / f"store-{format}")
        assert result.exit_code == 1
        assert "file.jsonl" in result.stderr
        assert result.stderr.count("\n") == 1


def test_replay(tmp_path):
    store = EpisodeStore(tmp_path / "store", sync="never")
    with Site({"/": START, "/form": "<title>form</title><h1>42</h1>"}) as site:

        async def prepare():
            async with Browsers() as browsers:
                await record(store, browsers, site, [Click(x=200, y=100), Answer(text="done")], "again")

        asyncio.run(prepare())
        site.pages["/form"] = "<title>form</title><h1>43</h1>"
        out = tmp_path / "pictures"
        result = holo("replay", store.folder, "again", "--allow", site.origin, "--out", out, "--json")
        assert (result.exit_code, result.stderr) == (1, "")
        answer = json.loads(result.stdout)
        assert [step["status"] for step in answer["steps"]] == ["same", "changed"]
        assert [step["picture"] for step in answer["steps"]] == [None, str(out / "step-0001.png")]
        result = holo("replay", store.folder, "again", "--allow", site.origin, "--tolerance", "0.1")
        assert result.exit_code == 0
        assert "2 of 2 steps replayed: 2 same, 0 changed, 0 failed" in result.stdout
        result = holo("replay", store.folder, "again")
        assert result.exit_code == 1
        assert "--allow-private 127.0.0.1 (" in result.stderr
        assert result.stderr.count("\n") == 1
        result = holo("replay", store.folder, "again", "--allow-private", "127.0.0.1", "--tolerance", "0.1")
        assert (result.exit_code, result.stderr) == (0, "")
        result = holo("replay", store.folder, "again", "--allow", "http://other.example")
        assert "--allow ORIGIN lets it be visited" in result.stderr


def test_a_missing_browser_is_no_bug(store, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLOTRON_CHROMIUM", "/nowhere")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(store.folder))
    out = tmp_path / "out"
    for words in (
        ["replay", store.folder, store.list_episodes()[0].id],
        ["screens", "--out", out],
        ["miniwob", "--out", out],
        ["pages", "--out", out],
    ):
        result = holo(*words)
        assert result.exit_code == 1
        assert "holotron doctor" in result.stderr
        assert "bug" not in result.stderr
    assert not out.exists()


# ---- samples ------------------------------------------------------------------------------------------------------


def made(folder):
    return [sample for path in shard_paths([folder]) for sample in read_shard(path)]


def test_screens(tmp_path):
    words = ["screens", "--out", tmp_path, "--mix", "widgets=1"]
    result = holo(*words, "--samples", 2)
    assert (result.exit_code, result.stdout) == (0, f"2 samples written to {tmp_path}\n")
    result = holo(*words, "--samples", 3)  # goes on
    assert (result.exit_code, result.stdout) == (0, f"1 samples written to {tmp_path}\n")
    samples = made(tmp_path)
    assert [sample.about["seed"] for sample in samples] == [0, 1, 2]
    assert {sample.kind for sample in samples} == {"ground/widgets"}
    page = tmp_path / "view.html"
    result = holo("screens", "--mix", "pages=1", "--view", page, 1)
    assert (result.exit_code, result.stdout) == (0, f"{page}\n")
    assert "<b>ground/pages</b>" in page.read_text()


def lines(result):
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_teachers_play_into_a_store_that_a_second_run_goes_on_in(tmp_path):
    tasks, out = ["click-test", "click-button"], tmp_path / "out"
    words = ["miniwob", *tasks, "--out", out, "--noise", 0, "--first-seed", 5]
    result = holo(*words, "--episodes", 2, "--sessions", 1)
    assert result.exit_code == 0, result.output
    solved = [f"{task} 1 of 1 solved, 1.0 steps" for task in tasks]
    assert lines(result) == [*solved, "2 episodes, 2 steps"]
    result = holo(*words, "--episodes", 3, "--workers", 2)
    assert lines(result)[-1] == "1 episodes, 1 steps, 2 were there already"
    infos = EpisodeStore(out).list_episodes()
    assert {info.policy.model for info in infos} == {"teacher"}
    assert sorted((info.task.name, info.task.seed) for info in infos)[0] == ("click-button", 5)
    assert all(info.outcome.success for info in infos)


def test_teachers_are_tried_out(tmp_path):
    (first, *_) = (found.name for found in all_templates(held_out=False))
    words = ["pages", first, "--episodes", 1, "--save", tmp_path / "seen", "--table", tmp_path / "table.md"]
    result = holo(*words)
    assert result.exit_code == 0, result.output
    assert lines(result)[0].startswith(f"{first} 1 of 1 solved, ")
    assert (tmp_path / "table.md").read_text().splitlines()[-1].startswith(f"| {first} | 1/1 | ")
    kept = sorted(path.name for path in (tmp_path / "seen").iterdir())
    assert kept[:2] == [f"{first}-0.png", f"{first}-1.png"]
    assert kept[-1] == f"{first}.txt"


def test_a_policy_is_corrected_into_a_store(tmp_path):
    words = ["miniwob", "click-test", "--out", tmp_path, "--model", "holotron-nano", "--device", "cpu"]
    result = holo(*words, "--episodes", 1, "--sessions", 1)
    assert result.exit_code == 0, result.output
    store = EpisodeStore(tmp_path)
    (info,) = store.list_episodes()
    assert (info.policy.model, info.policy.sampling) == ("holotron-nano", {"temperature": 0.5})
    step, *_ = store.steps(info.id)
    assert step.output is not None
    assert step.teacher is not None
    assert step.actor in ("policy", "teacher")


def test_ctrl_c_leaves_whole_shards(tmp_path):
    """As a terminal does it: the signal goes to the command and to everything it has started."""
    command = [sys.executable, "-m", "holotron.cli.main", "data", "screens", "--mix", "widgets=1", "--samples", "99999"]
    with subprocess.Popen([*command, "--out", tmp_path], start_new_session=True, stderr=subprocess.PIPE) as running:
        try:
            deadline = time.monotonic() + 60
            while not any(path.stat().st_size for path in tmp_path.glob(".*-writing-*")):
                assert time.monotonic() < deadline
                assert running.poll() is None
                time.sleep(0.05)
            os.killpg(running.pid, signal.SIGINT)
            running.communicate(timeout=60)
        finally:
            while running.poll() is None:  # the second one kills what the first has not stopped
                running.send_signal(signal.SIGINT)
                time.sleep(1)
    assert list(tmp_path.glob(".*")) == []
    assert 0 < len(made(tmp_path)) < 99999


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_ctrl_c_keeps_what_is_finished(tmp_path):
    """As a terminal does it, with worker processes: browsers end, and the same command goes on."""
    words = ["miniwob", "click-test", "click-button", "--out", tmp_path, "--workers", 2, "--noise", 0]
    command = [sys.executable, "-m", "holotron.cli.main", "data", *map(str, words), "--episodes", "5000"]
    store = EpisodeStore(tmp_path)
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as running:
        try:
            deadline = time.monotonic() + 60
            while sum(info.finished for info in store.list_episodes()) < 5:
                assert time.monotonic() < deadline
                assert running.poll() is None
                time.sleep(0.05)
            below = descendants(running.pid)
            os.killpg(running.pid, signal.SIGINT)
            _, said = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 130
    assert said.endswith("stopped; the same command goes on from there\n")
    assert "Traceback" not in said
    assert not [pid for pid in below if "chrom" in command_line(pid)]
    assert store.check() == []
    finished = sum(info.finished for info in store.list_episodes())
    result = holo(*words, "--episodes", finished + 2)
    assert result.exit_code == 0, result.output
    assert EpisodeStore(tmp_path).check() == []
    assert all(info.outcome.success for info in store.list_episodes(finished=True))
