"""The commands as a user meets them: output, exit codes, and one line when something is wrong."""

import errno
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import holotron
from holotron.agent.chat import ModelUnavailable
from holotron.cli import checks, doctor, main
from holotron.cli.errors import report
from holotron.cli.main import app
from holotron.env.errors import BrowserMissing
from holotron.episodes.store import EpisodeStore
from holotron.model.presets import PRESETS
from holotron.plan.gpus import GPUS
from holotron.plan.workload import parse_size
from holotron.suites.miniwob.tasks import MiniWoBMissing
from tests.episodes.samples import ENVIRONMENT, POLICY, a_task

SOURCE = Path(holotron.__file__).parents[1]
COMMANDS = ("models", "plan", "doctor", "film", "cost")


def holo(*arguments, columns=80):
    return CliRunner(env={"COLUMNS": str(columns), "TERMINAL_WIDTH": str(columns)}).invoke(app, arguments)


def shell(*arguments, **environment):
    """The command in a process of its own, its output piped."""
    variables = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80", **environment}
    variables.pop("FORCE_COLOR", None)
    command = [sys.executable, "-m", "holotron.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=60, check=False)


# ---- all commands -------------------------------------------------------------------------------------------------


def test_version():
    result = holo("--version")
    assert (result.exit_code, result.stdout) == (0, f"holotron {holotron.__version__}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_on_a_line_of_its_own(command):
    result = holo(command, "--help")
    assert result.exit_code == 0
    assert any(line.strip().startswith(f"holotron {command}") for line in result.stdout.splitlines())


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("words", [(), ("run",), ("serve",)])
def test_help_fits_a_narrow_terminal(words, columns):
    """No word is cut off, and an example can be copied as it stands."""
    done = shell(*words, "--help", COLUMNS=str(columns))
    assert max(map(len, done.stdout.splitlines())) <= columns
    assert not {"…", "..."} & set(done.stdout.replace("[ARGS]...", "").split())
    command = next((command for command in app.registered_commands if (command.name,) == words), None)
    _, *given = (command.epilog if command else app.info.epilog).split("\n\n")
    shown = " ".join(done.stdout.partition("Examples:")[2].replace("\\\n", " ").split())
    assert all(" ".join(each.strip("\b").replace("\\\n", " ").split()) in shown for each in given)


def test_without_a_command_the_help_is_shown_as_misuse():
    result = holo()
    assert result.exit_code == 2
    assert all(command in result.stdout for command in COMMANDS)


@pytest.mark.parametrize("group", ["data", "eval", "train", "pipeline"])
def test_a_group_without_a_command_shows_its_help_as_misuse(group):
    result = holo(group)
    assert (result.exit_code, result.stderr) == (2, "")
    assert f" {group} [OPTIONS] COMMAND" in result.stdout


GRPO = ["train", "grpo", str(Path(__file__).parents[2] / "recipes" / "grpo-miniwob.toml"), "--out", "no-out"]


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["nonsense"], "nonsense"),
        (["plan"], "MODEL"),
        (["plan", "no-such-model"], "no-such-model"),
        (["plan", "qwen3-8b", "--against", "no-such-model"], "no-such-model"),
        (["plan", "qwen3-8b", "--gpu", "H300"], "H300"),
        (["plan", "qwen3-8b", "--screen", "1920"], "1920"),
        (["plan", "qwen3-8b", "--screen", "0x0"], "0x0"),
        (["plan", "qwen3-8b", "--screen", "-5x10"], "-5x10"),
        (["plan", "qwen3-8b", "--screen", "axb"], "axb"),
        (["plan", "qwen3-8b", "--sessions", "0"], "sessions is 0"),
        (["plan", "qwen3-8b", "--sessions", "many"], "--sessions"),
        (["plan", "qwen3-8b", "--steps", "-3"], "steps is -3"),
        (["plan", "qwen3-8b", "--weights", "int4"], "int4"),
        (["plan", "qwen3-8b", "--kv", "int4"], "int4"),
        (["plan", "qwen3-8b", "--state", "8"], "8 bits"),
        (["plan", "qwen3-8b", "--reserve", "1.5"], "1.5"),
        (["models", "--nonsense"], "--nonsense"),
        (["eval", "miniwob", "--engines", "3", "--workers", "2"], "--engines 3"),
        (["eval", "miniwob", "--engines", "2", "--workers", "2", "--baseline", "random"], "--engines 2"),
        ([*GRPO, "--ray", "auto", "--set", "rollout.copies=2"], "rollout.copies=0"),
    ],
)
def test_misuse_is_one_line_that_names_the_value(arguments, value):
    result = holo(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert value in result.stderr


RUN = ["run", "x", "--url", "http://localhost"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["rollout", "no-file", "--out", "no-out"],
        ["train", "sft", "no-file", "--out", "no-out"],
        ["train", "grpo", "no-file", "--out", "no-out"],
        ["train", "card", "no-file", "--result", "a=b", "--out", "no-out"],
        ["train", "hard-tasks", "no-file", "--out", "no-out"],
        ["pipeline", "run", "no-file"],
        ["serve", "--api-key-file", "no-file"],
        [*RUN, "--secret", "word=@no-file"],
        [*RUN, "--prices", "no-file"],
    ],
)
def test_a_missing_file_is_misuse_told_in_words(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = holo(*arguments)
    assert result.exit_code == 2
    assert "no-file" in result.stderr
    assert "Errno" not in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [["rollout", "file", "--out"], ["eval", "miniwob", "--out"], ["train", "sft", "file", "--out"], [*RUN, "--record"]],
)
def test_a_file_where_a_folder_is_wanted_is_misuse_and_stays(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("{}", encoding="utf-8")
    result = holo(*arguments, "file")
    assert result.exit_code == 2
    assert "'file' is a file" in result.stderr
    assert Path("file").read_text(encoding="utf-8") == "{}"


def test_unknown_names_list_the_known():
    assert all(name in holo("plan", "x").stderr for name in PRESETS)
    assert all(name in holo("plan", "qwen3-8b", "--gpu", "x").stderr for name in GPUS)


def test_a_bug_is_one_line_unless_debugging(monkeypatch):
    def broken():
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(doctor, "run_checks", broken)
    result = holo("doctor")
    assert result.exit_code == 1
    assert result.stderr == "error: RuntimeError: two lines (a bug; HOLOTRON_DEBUG=1 shows where)\n"
    monkeypatch.setenv("HOLOTRON_DEBUG", "1")
    result = holo("doctor")
    assert result.exit_code == 1
    assert isinstance(result.exception, RuntimeError)


def test_ctrl_c_before_a_command_has_begun(monkeypatch):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "app", interrupted)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130


def test_ctrl_c_while_commands_are_imported():
    """Python tells of each module that it has imported, so that the interrupt comes in the middle of them."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-X", "importtime", "-m", "holotron", "models"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as begun:
        next(line for line in begun.stderr if line.strip().endswith("rich.errors"))
        begun.send_signal(signal.SIGINT)
        out, err = begun.communicate(timeout=60)
    assert (begun.returncode, out) == (130, "")
    assert "Traceback" not in err


class SafetensorError(Exception):
    """Named as the library's."""


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (lambda: re.compile("("), 2, "'(' is no regular expression"),
        (lambda: __import__("a_package_that_is_not_here"), 1, "the package 'a_package_that_is_not_here' is missing"),
        (lambda: _raise(ImportError("install httpx[socks]")), 1, "error: install httpx[socks]\n"),
        (lambda: _raise(BrowserMissing("no Chromium")), 1, "error: no Chromium"),
        (lambda: _raise(MiniWoBMissing("no tasks")), 1, "error: no tasks"),
        (lambda: _raise(OSError(errno.ENOSPC, "No space left on device")), 1, "the disk is full"),
        (lambda: _raise(SafetensorError("I/O error: No space left on device (os error 28)")), 1, "the disk is full"),
        (lambda: EpisodeStore(__file__).begin(a_task(0), POLICY, ENVIRONMENT), 1, f"{__file__} is a file, so that"),
        (lambda: _raise(ExceptionGroup("workers", [ModelUnavailable("away")])), 1, "error: away"),
    ],
)
def test_what_is_no_bug_is_not_called_one(error, code, says, capsys):
    with pytest.raises(Exception) as caught:  # noqa: PT011
        error()
    assert report(caught.value) == code
    told = capsys.readouterr().err
    assert says in told
    assert "a bug" not in told
    assert told.count("\n") == 1


def _raise(error: Exception) -> None:
    raise error


def test_doctor_knows_what_a_window_needs(monkeypatch, tmp_path):
    shell = tmp_path / "chromium-headless-shell"
    shell.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    monkeypatch.delenv("HOLOTRON_CHROMIUM", raising=False)
    assert checks.check_chromium()[0] == "ok"
    state, detail, fix = checks.check_window()
    assert (state, "no window" in detail) == ("note", True)
    assert "playwright install" in fix
    shell.with_name("chromium").touch(0o755)
    monkeypatch.setenv("DISPLAY", ":0")
    assert checks.check_window() == ("ok", str(tmp_path / "chromium"))


def test_starting_up_does_not_import_torch():
    """Nor does the half of a server that reads and writes text."""
    code = (
        "import sys; from holotron.cli.main import app; app(['models'], standalone_mode=False);"
        "from holotron.server.run import load_texts; from holotron.engine.options import EngineOptions;"
        " load_texts(EngineOptions('holotron-nano'));"
        " assert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=environment, timeout=60)


# ---- models -------------------------------------------------------------------------------------------------------


def test_models_table_cuts_nothing_off():
    result = holo("models")
    assert result.exit_code == 0
    for name, preset in PRESETS.items():
        assert name in result.stdout
        assert (preset.hub_id or "in this package") in result.stdout
    assert "…" not in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_models_json():
    listed = {entry["name"]: entry for entry in json.loads(holo("models", "--json").stdout)}
    assert list(listed) == list(PRESETS)
    ours = listed["holotron-12b"]
    assert set(ours) == {
        "name",
        "about",
        "hub_id",
        "layers",
        "mamba_layers",
        "mlp_layers",
        "moe_layers",
        "attention_layers",
        "text_parameters",
        "active_parameters",
        "vision_parameters",
        "projector_parameters",
        "kv_bytes_per_token",
        "state_bytes_16_bit",
        "state_bytes_32_bit",
        "conv_bytes",
        "max_positions",
    }
    assert ours["text_parameters"] == 12_310_001_152
    assert (ours["mamba_layers"], ours["mlp_layers"], ours["attention_layers"]) == (28, 28, 6)
    assert (ours["kv_bytes_per_token"], ours["state_bytes_16_bit"]) == (24_576, 70 * 2**20)


def test_models_piped():
    result = shell("models")
    assert result.returncode == 0
    assert "holotron-12b" in result.stdout
    assert "\x1b" not in result.stdout


# ---- plan ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120])
def test_plan_table(columns):
    result = holo("plan", "holotron-12b", "--gpu", "h200", "--sessions", "100", columns=columns)
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for words in ("100 sessions fit", "100 sessions do not fit", "28 Mamba-2 layers, not 56", "2,304 tokens", "2^30"):
        assert words in text
    assert "KV per token 24,576 B 147,456 B" in text
    assert "SSM state per session, 16 / 32 bit 70 / 140 MiB none" in text
    assert all(len(line) <= columns for line in result.stdout.splitlines())


def test_plan_json():
    answer = json.loads(holo("plan", "holotron-12b", "--gpu", "H200", "--json").stdout)
    assert set(answer) == {"plan", "against", "efficiency", "verdicts", "assumptions", "corrections", "held"}
    assert answer["held"] == []
    assert answer["plan"]["workload"]["image_tokens"] == answer["against"]["workload"]["image_tokens"] == 2304
    assert answer["plan"]["memory"]["kv_bytes_per_token"] == 24_576
    assert answer["plan"]["fits"] is True
    assert answer["against"]["fits"] is False
    assert len(answer["verdicts"]) == 2


def test_plan_alone():
    answer = json.loads(holo("plan", "qwen3-8b", "--json").stdout)
    assert answer["against"] is None
    answer = json.loads(holo("plan", "holotron-12b", "--image-tokens", "256", "--against", "none", "--json").stdout)
    assert answer["against"] is None
    assert answer["plan"]["workload"]["image_tokens"] == 256


def test_plan_options_reach_the_planner():
    arguments = ["--weights", "FP8", "--kv", "fp8", "--state", "32", "--text-only", "--steps", "5", "--reserve", "0.2"]
    answer = json.loads(holo("plan", "qwen3-8b", "--gpu", "rtx 4090", *arguments, "--json").stdout)["plan"]
    assert answer["precision"] == {"weights": "fp8", "kv": "fp8", "state_bits": 32}
    assert (answer["workload"]["text_only"], answer["workload"]["steps"]) == (True, 5)
    assert answer["gpu"]["name"] == "RTX-4090"
    assert answer["memory"]["reserve_bytes"] == pytest.approx(0.2 * answer["gpu"]["memory_bytes"], abs=1)


def test_plan_when_the_weights_do_not_fit():
    result = holo("plan", "nemotron-3-super-120b-a12b", "--against", "none")
    assert result.exit_code == 0
    assert "do not fit on one H100" in " ".join(result.stdout.split())
    assert "steps/s" not in result.stdout


def test_plan_of_a_folder(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "qwen3",
                "num_hidden_layers": 2,
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "vocab_size": 256,
                "rms_norm_eps": 1e-6,
                "rope_theta": 10000.0,
                "max_position_embeddings": 512,
                "hidden_act": "silu",
                "tie_word_embeddings": True,
            }
        )
    )
    result = holo("plan", str(tmp_path), "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["plan"]["memory"]["kv_bytes_per_token"] == 2 * 2 * 2 * 2 * 16


def test_plan_of_a_broken_folder_fails_rather_than_being_misuse(tmp_path):
    (tmp_path / "config.json").write_text("{")
    result = holo("plan", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "config.json" in result.stderr


def test_plan_piped():
    result = shell("plan", "nemotron-nano-12b-v2", "--gpu", "H100")
    assert result.returncode == 0, result.stderr
    assert "agent steps/s" in result.stdout
    assert "\x1b" not in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


@pytest.mark.parametrize("text", ["1920x1080", "1920X1080", " 1920×1080 "])
def test_screen_sizes(text):
    assert parse_size("--screen", text) == (1920, 1080)


# ---- doctor -------------------------------------------------------------------------------------------------------


@pytest.fixture
def without(monkeypatch):
    """Make packages look as if they were not installed."""
    find_spec = importlib.util.find_spec

    def hide(*names):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, package=None: None if name in names else find_spec(name, package)
        )

    return hide


@pytest.fixture
def versions(monkeypatch):
    """Make packages look as if they were installed in other versions."""
    version = importlib.metadata.version

    def pretend(**changed):
        monkeypatch.setattr(importlib.metadata, "version", lambda name: changed.get(name) or version(name))

    return pretend


def found(name):
    return next(check for check in checks.run_checks() if check.name == name)


def test_doctor_json():
    result = holo("doctor", "--json")
    answer = json.loads(result.stdout)
    assert set(answer) == {"holotron", "ok", "checks"}
    assert all(set(check) == {"name", "state", "detail", "needed_for", "fix", "required"} for check in answer["checks"])
    names = [check["name"] for check in answer["checks"]]
    assert len(names) == len(set(names))
    assert {"python", "torch", "triton", "GPU", "memory", "disk", "chromium", "playwright", "fonts"} <= set(names)
    assert {check["state"] for check in answer["checks"]} <= {"ok", "note", "missing"}
    assert result.exit_code == (0 if answer["ok"] else 1)


def test_doctor_without_torch(without):
    without("torch")
    result = holo("doctor")
    assert result.exit_code == 1
    assert "python -m pip install 'torch>=2.11,<2.14'" in result.stdout
    assert found("GPU").detail == "cannot be seen without torch"


def test_doctor_without_what_is_optional(without, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    monkeypatch.delenv("HOLOTRON_CHROMIUM", raising=False)
    monkeypatch.setattr(checks, "FONT_FOLDERS", (str(tmp_path),))
    without("miniwob", "triton")
    result = holo("doctor")
    assert result.exit_code == 0
    for fix in ("miniwob>=1.1", "playwright install --with-deps chromium", "fonts-"):
        assert fix in result.stdout


@pytest.mark.parametrize(
    ("version", "state"),
    [("2.9.1", "missing"), ("2.11.0", "ok"), ("2.13.0+cu130", "ok"), ("2.14.0", "missing"), ("3.0", "missing")],
)
def test_doctor_on_versions_of_torch(versions, version, state):
    versions(torch=version)
    check = found("torch")
    assert (check.state, check.failed) == (state, state == "missing")
    assert version in check.detail


@pytest.mark.parametrize(("version", "state"), [((3, 10, 4), "missing"), ((3, 13, 1), "ok"), ((3, 14, 0), "missing")])
def test_doctor_on_versions_of_python(monkeypatch, version, state):
    monkeypatch.setattr(checks.sys, "version_info", version)
    assert found("python").state == state


def test_a_check_that_breaks_is_its_own_problem(monkeypatch):
    def broken():
        raise OSError("no such\ndevice")

    monkeypatch.setattr(checks, "available_memory", broken)
    check = found("memory")
    assert check.state == "note"
    assert check.detail == "this check broke: OSError: no such device"
    assert holo("doctor").exit_code == 0


def test_a_torch_that_cannot_be_imported_is_missing(monkeypatch):
    import_module = importlib.import_module

    def broken(name, package=None):
        if name == "torch":
            raise ImportError("libcudart.so: cannot open shared object file")
        return import_module(name, package)

    monkeypatch.setattr(importlib, "import_module", broken)
    result = holo("doctor", "--json")
    torch_check = next(check for check in json.loads(result.stdout)["checks"] if check["name"] == "torch")
    assert result.exit_code == 1
    assert torch_check["state"] == "missing"
    assert "libcudart.so" in torch_check["detail"]
    assert "--force-reinstall" in torch_check["fix"]


def test_doctor_finds_chromium(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "cache"))
    monkeypatch.delenv("HOLOTRON_CHROMIUM", raising=False)
    assert found("chromium").state == "missing"

    def program(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    cached = program(
        tmp_path / "cache/chromium_headless_shell-1200/chrome-headless-shell-linux64/chrome-headless-shell"
    )
    assert found("chromium").detail == str(cached)
    installed = program(tmp_path / "chromium")
    assert found("chromium").detail == str(installed)
    chosen = program(tmp_path / "mine" / "browser")
    monkeypatch.setenv("HOLOTRON_CHROMIUM", str(chosen))
    assert found("chromium").detail == str(chosen)
    monkeypatch.setenv("HOLOTRON_CHROMIUM", str(tmp_path / "gone"))
    wrong = found("chromium")
    assert wrong.state == "missing"
    assert "gone" in wrong.detail


def test_doctor_asks_for_what_the_package_asks_for():
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]
    wanted = set(project["dependencies"]) - {
        line for line in project["dependencies"] if line.startswith(("typer", "rich"))
    }
    assert {package.requirement for package in checks.PACKAGES if package.required} == wanted


def test_doctor_piped():
    result = shell("doctor")
    assert result.returncode in (0, 1)
    assert "python" in result.stdout
    assert "\x1b" not in result.stdout
