"""`holotron data`: what a user types, what comes of it, and what is said when it cannot."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from holotron.agent.actions import Answer, Click
from holotron.cli import data
from holotron.cli.main import CommandGroup
from holotron.data.episodes.store import EpisodeStore
from holotron.env.browsers import Browsers
from tests.data.samples import check_store, write_task
from tests.data.test_replay import START, record
from tests.env.site import Site

app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)
app.add_typer(data.app, name="data")
app.command("other")(lambda: None)  # with a single command typer would leave out the name of the group
SAMPLES = Path(__file__).parents[1] / "data" / "sample_store"


def holo(*arguments):
    words = [str(argument) for argument in arguments]
    return CliRunner(env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"}).invoke(app, ["data", *words])


@pytest.fixture
def store(tmp_path):
    store = EpisodeStore(tmp_path / "store", sync="never")
    for number in range(3):
        write_task(store, number)
    return store


@pytest.mark.parametrize("command", ["export", "import", "check", "replay"])
def test_help_has_an_example(command):
    result = holo(command, "--help")
    assert result.exit_code == 0
    assert any(line.strip().startswith(f"holotron data {command}") for line in result.stdout.splitlines())


def test_without_a_command_the_help_is_shown_as_misuse():
    result = holo()
    assert result.exit_code == 2
    assert all(command in result.stdout for command in ("export", "import", "check", "replay"))


@pytest.mark.parametrize("format", data.FORMATS)
@pytest.mark.parametrize("images", data.IMAGES)
def test_out_and_in_again(store, tmp_path, format, images):
    out, copy = tmp_path / "out", tmp_path / "copy"
    result = holo("export", store.folder, out, "--format", format, "--images", images)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "3 episodes written to" in result.stdout
    source = ["--images-from", store.folder] if images == "reference" else []
    result = holo("import", out, copy, "--format", format, "--json", *source)
    assert (result.exit_code, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert answer["imported"] == [info.id for info in store.list_episodes()]
    if format == "parquet":
        check_store(EpisodeStore(copy), 3)
    result = holo("import", out, copy, "--format", format, *source)
    assert (result.exit_code, result.stdout) == (0, f"0 episodes brought into {copy}\n")
    result = holo("check", copy, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"episodes": 3, "unfinished": 0, "problems": []})


def test_formats_are_those_there_are():
    from typing import get_args

    from holotron.data.episodes.transfer import Format

    assert get_args(Format) == data.FORMATS


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
        (["export", "STORE", "OUT"], "--format"),
        (["export", "STORE", "OUT", "--format", "csv"], "'csv'; choose one of parquet, openai"),
        (["export", "STORE", "OUT", "--format", "openai", "--images", "no"], "--images is 'no'"),
        (["export", "OUT", "OUT", "--format", "openai"], "is no store"),
        (["export", "STORE", "STORE", "--format", "openai"], "it is a folder"),
        (["export", "STORE", "OUT/deeper/file", "--format", "openai"], "its folder is not there"),
        (["import", "OUT", "STORE", "--format", "openai"], "there is no file"),
        (["import", "FILE", "STORE", "--format", "x"], "--format is 'x'"),
        (["import", "FILE", "FILE", "--format", "openai"], "a store is a folder"),
        (["import", "FILE", "STORE", "--format", "openai", "--images-from", "OUT"], "is no store"),
        (["check", "OUT"], "is no store"),
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
    known = {"STORE": SAMPLES, "OUT": tmp_path / "out", "FILE": file, "EPISODE": episode.id}
    words = [
        str(known[argument]) if argument in known else argument.replace("OUT/", f"{known['OUT']}/")
        for argument in arguments
    ]
    result = holo(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert says in result.stderr


def test_failures_are_one_line(tmp_path):
    empty = tmp_path / "empty"
    (empty / "episodes").mkdir(parents=True)
    result = holo("export", empty, tmp_path / "out", "--format", "parquet")
    assert result.exit_code == 1
    assert "no finished episode" in result.stderr
    file = tmp_path / "file.jsonl"
    file.write_text("nonsense\n")
    for format in data.FORMATS:
        result = holo("import", file, tmp_path / "store", "--format", format)
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
        assert "--allow ORIGIN lets it be visited" in result.stderr
        assert result.stderr.count("\n") == 1


def test_a_missing_browser_is_no_bug(store, monkeypatch):
    monkeypatch.setenv("HOLOTRON_CHROMIUM", "/nowhere")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(store.folder))
    result = holo("replay", store.folder, store.list_episodes()[0].id)
    assert result.exit_code == 1
    assert "holotron doctor" in result.stderr
    assert "bug" not in result.stderr
