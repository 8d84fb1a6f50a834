"""Pipelines: what is done stays done, what changed is done again, and what was killed goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holotron.cli.main import app
from holotron.train import pipeline_run
from holotron.train.pipeline import LOGS, REPLACED, PipelineError, PipelineState, StepFailed, read_pipeline
from holotron.train.pipeline_run import run_pipeline

from .command_line import begin, holotron
from .samples import CLICKER_RECIPE, write_clicker

# Stands for the command line: writes its words to a file, waits, or fails.
PROGRAM = """
import pathlib, sys, time
kind, path, *words = sys.argv[1:]
place = pathlib.Path(path)
print(f"{kind} {path} {words}", flush=True)
if kind == "fail":
    print("it went wrong here", file=sys.stderr)
    sys.exit(3)
if kind == "slow":
    tries = int(place.with_suffix(".tries").read_text()) if place.with_suffix(".tries").exists() else 0
    place.with_suffix(".tries").write_text(str(tries + 1))
    if tries == 0:
        time.sleep(60)
if kind != "nothing":
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(" ".join(words) + "\\n")
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    monkeypatch.setattr(pipeline_run, "PROGRAM", (sys.executable, str(path)))


def write(folder: Path, *steps: str, head: str = "") -> Path:
    path = folder / "pipelines" / "p.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        'name = "p"\nfolder = ".."\nstate = "runs/p"\n' + head + "".join(f"[[step]]\n{step}\n" for step in steps)
    )
    return path


def step(name: str, kind: str = "write", words: str = "", inputs: str = "[]", more: str = "") -> str:
    run = f"holotron {kind} out/{name} {words}"
    return f'name = "{name}"\nrun = "{run}"\ninputs = {inputs}\noutputs = ["out/{name}"]\n{more}'


def ran(path: Path, **options: str) -> list[str]:
    """The steps that this call ran."""
    told: list[str] = []
    run_pipeline(read_pipeline(path), told.append, **options)
    return [line.split("] ")[1].split(":")[0] for line in told if ": done, in" in line]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    (tmp_path / "given").write_text("x")
    path = write(
        tmp_path,
        step("a", inputs='["given"]', words="1"),
        step("b", inputs='["out/a"]', words="2"),
        step("c", words="3"),
    )
    assert ran(path) == ["a", "b", "c"]
    assert ran(path) == []
    (tmp_path / "given").write_text("y")
    assert ran(path) == ["a", "b"], "what is made from it is made again, too"
    path.write_text(path.read_text().replace("out/b 2", "out/b 4"))
    assert ran(path) == ["b"]
    assert (tmp_path / "out" / "b").read_text() == "4\n"
    (tmp_path / "out" / "c").unlink()
    assert ran(path) == ["c"]
    assert ran(path, first="b") == ["b", "c"]
    assert ran(path, only="a") == ["a"]
    assert ran(path) == ["b"], "its input was made again"
    replaced = sorted(file.name for file in (tmp_path / "runs" / "p" / REPLACED).iterdir())
    assert replaced == ["a.0", "a.1", "b.0", "b.1", "b.2", "b.3", "c.0"], "nothing is overwritten"


def test_words_from_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, step("names", words="x y z"), step("a", words="@out/names end", inputs='["out/names"]'))
    ran(path)
    assert (tmp_path / "out" / "a").read_text() == "x y z end\n"
    (tmp_path / "out" / "names").write_text("")
    with pytest.raises(PipelineError, match="out/names is empty"):
        ran(path, only="a")


def test_a_step_that_fails_says_where_and_goes_on_later(tmp_path: Path) -> None:
    path = write(tmp_path, step("a"), step("b", kind="fail"), step("c"))
    result = CliRunner().invoke(app, ["pipeline", "run", str(path)])
    assert result.exit_code == 1
    log = tmp_path / "runs" / "p" / LOGS / "b.log"
    assert "it went wrong here" in result.stderr
    assert "the step b failed with exit code 3 after" in result.stderr
    assert f"its log is {log}" in result.stderr
    assert "it went wrong here" in log.read_text()
    path.write_text(path.read_text().replace("holotron fail", "holotron write"))
    assert ran(path) == ["b", "c"]
    path.write_text(path.read_text().replace("holotron write out/c", "holotron nothing out/c"))
    with pytest.raises(StepFailed, match="the step c ended well and has not made out/c"):
        ran(path)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_pipeline_that_is_killed_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    path = write(tmp_path, step("a"), step("b", kind="slow", words="w"), step("c"))
    script = (
        "import sys; from pathlib import Path; from holotron.train import pipeline, pipeline_run\n"
        f"pipeline_run.PROGRAM = {pipeline_run.PROGRAM!r}\n"
        f"pipeline_run.run_pipeline(pipeline.read_pipeline(Path({str(path)!r})), print)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    tries = tmp_path / "out" / "b.tries"
    deadline = time.monotonic() + 60
    while not tries.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    pid = _child(process.pid)
    with pytest.raises(OSError, match="another process is running this pipeline"):
        ran(path)
    process.send_signal(how)
    process.communicate(timeout=600)
    assert process.returncode
    while _alive(pid) and time.monotonic() < deadline:  # a step does not outlive its pipeline
        time.sleep(0.02)
    assert not _alive(pid)
    state = PipelineState.read(read_pipeline(path))
    assert [state.status(each).why for each in state.pipeline.steps] == [
        "done",
        "interrupted: goes on",
        "not run yet",
    ]
    assert ran(path) == ["b", "c"]
    assert tries.read_text() == "2", "the same folder, not one that was put aside"


def _child(pid: int) -> int:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(text[0])


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_show_says_what_is_done_and_what_is_left(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        step("a"),
        step("b", more="seconds = 90"),
        step("c", more="seconds = 10.5"),
        step("d"),
        head='machine = "a laptop"\n',
    )
    ran(path, only="a")
    for arguments in (["show", str(path)], ["run", str(path), "--dry-run"]):
        shown = CliRunner().invoke(app, ["pipeline", *arguments]).stdout
        assert "1 of 4 steps are done, in " in shown
        assert "left: about 100 s on a laptop, and 1 steps that nobody timed" in shown
        assert "holotron write out/b" in shown
    found = json.loads(CliRunner().invoke(app, ["pipeline", "show", str(path), "--json"]).stdout)
    assert [each["done"] for each in found["steps"]] == [True, False, False, False]
    assert found["left_seconds"] == 100.5
    assert not (tmp_path / "out" / "b").exists()


def test_pipelines_name_what_is_wrong(tmp_path: Path) -> None:
    good = step("a")
    for steps, message in (
        ([], "at least one step"),
        ([good, good], "two steps are called 'a'"),
        ([good + "input = []\n"], "unknown key 'input'"),
        ([good.replace("holotron", "rm")], "a step is a command of holotron"),
        ([good.replace('outputs = ["out/a"]', "outputs = []")], "the step a has no outputs"),
        ([step("a", inputs='["out/b"]'), step("b")], "reads 'out/b', which a later step makes"),
        ([good, step("b").replace('outputs = ["out/b"]', 'outputs = ["out/a"]')], "made by two steps, a and b"),
        ([step("a b")], "a step is named 'a b'"),
        ([step("a", words="@tasks.txt")], "takes words from 'tasks.txt', which is not among its inputs"),
    ):
        with pytest.raises(PipelineError, match=message):
            read_pipeline(write(tmp_path, *steps))
    with pytest.raises(PipelineError, match="unknown key 'speed'"):
        read_pipeline(write(tmp_path, good, head="speed = 3\n"))
    with pytest.raises(PipelineError, match="there is no step 'z'; there are a"):
        ran(write(tmp_path, good), only="z")
    with pytest.raises(PipelineError, match="reads gone, which is not there"):
        ran(write(tmp_path, step("a", inputs='["gone"]')))
    path = write(tmp_path, good)
    assert CliRunner().invoke(app, ["pipeline", "run", str(path), "--only", "z"]).exit_code == 2
    ran(path)
    (tmp_path / "runs" / "p" / "state.json").write_text("{")
    with pytest.raises(PipelineError, match="remove it to run everything again"):
        ran(path)


# ---- the real command line ----

TINY = """
name = "tiny"
state = "state"

[[step]]
name = "screens"
run = "holotron data screens --out screens --samples 8 --mix widgets=1"
outputs = ["screens"]

[[step]]
name = "localization"
run = "holotron train sft localization.toml --out localization --device cpu"
inputs = ["localization.toml", "start", "screens"]
outputs = ["localization"]

[[step]]
name = "teachers"
run = "holotron data miniwob click-test click-button --out teachers --episodes 6"
outputs = ["teachers"]

[[step]]
name = "navigation"
run = "holotron train sft navigation.toml --out navigation --device cpu"
inputs = ["navigation.toml", "localization/weights", "teachers", "screens"]
outputs = ["navigation"]

[[step]]
name = "measured"
run = '''holotron eval miniwob --model navigation/weights --tasks click-test,click-button --seeds 7
    --max-tokens 32 --out measured'''
inputs = ["navigation/weights"]
outputs = ["measured"]

[[step]]
name = "hard-tasks"
run = "holotron train hard-tasks measured --at-most 1 --out hard-tasks.txt"
inputs = ["measured"]
outputs = ["hard-tasks.txt"]

[[step]]
name = "dagger"
run = "holotron data miniwob @hard-tasks.txt --model navigation/weights --device cpu --out dagger --episodes 4"
inputs = ["hard-tasks.txt", "navigation/weights"]
outputs = ["dagger"]

[[step]]
name = "correction"
run = "holotron train sft correction.toml --out correction --device cpu"
inputs = ["correction.toml", "navigation/weights", "dagger"]
outputs = ["correction"]

[[step]]
name = "card"
run = "holotron train card card.md --result miniwob=measured --result stages=correction --out README.md"
inputs = ["card.md", "measured", "correction"]
outputs = ["README.md"]
"""


def test_a_tiny_pipeline_from_nothing_to_the_card(tmp_path: Path) -> None:
    """Data, three stages, an evaluation, corrections and the card; killed in the middle, it goes on."""
    write_clicker(tmp_path / "start")
    (tmp_path / "pipeline.toml").write_text(TINY)
    for name, stage, start, steps, data in (
        ("localization", "localization", "start", 2, '{ shards = "screens" }'),
        ("navigation", "navigation", "localization/weights", 3, '{ store = "teachers" }, { shards = "screens" }'),
        ("correction", "navigation", "navigation/weights", 2, '{ store = "dagger" }'),
    ):
        text = f'name="{name}"\nstage="{stage}"\nstart="{start}"\nsteps={steps}\nlog_every=1\ndata=[{data}]\n'
        (tmp_path / f"{name}.toml").write_text(text + CLICKER_RECIPE)
    places = "".join(f"<!-- results: {name} -->\n<!-- end -->\n" for name in ("miniwob", "stages"))
    (tmp_path / "card.md").write_text(places)

    state = tmp_path / "state" / "state.json"
    killed = begin(tmp_path, ["pipeline", "run", "pipeline.toml"], tmp_path / "pipeline.log")
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and killed.poll() is None:
        if state.exists() and "teachers" in json.loads(state.read_text())["steps"]:
            break
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    before = json.loads(state.read_text())["steps"]
    assert [record["status"] for record in before.values()] == ["done", "done", "interrupted"]

    said = holotron(tmp_path, "pipeline", "run", "pipeline.toml")
    assert "tiny: 7 steps were run, all 9 are done" in said
    after = json.loads(state.read_text())["steps"]
    assert all(record["status"] == "done" for record in after.values())
    assert [after[name]["token"] == before[name]["token"] for name in ("screens", "localization")] == [True, True]
    card = (tmp_path / "README.md").read_text()
    assert "| browsergym-125 |" in card
    assert "| correction | 2 |" in card
    assert set((tmp_path / "hard-tasks.txt").read_text().split()) == {"click-test", "click-button"}
    assert "dagger" in (tmp_path / "correction" / "metrics.jsonl").read_text()
    assert "all 9 are done" in holotron(tmp_path, "pipeline", "run", "pipeline.toml")
