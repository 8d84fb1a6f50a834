"""What the documentation shows runs."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from holotron.cli.main import app
from tests.docs_run import BLOCK, MARK, shown

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def blocks(name: str) -> list[str]:
    return FENCE.findall((ROOT / name).read_text(encoding="utf-8"))


def test_the_engine_example_runs():
    scope: dict[str, object] = {}
    for example in blocks("docs/engine.md"):
        exec(compile(example, "docs/engine.md", "exec"), scope)
    assert scope["first"].token_ids == scope["anew"].token_ids
    assert scope["first"].token_ids


def test_the_readme_example_runs():
    run, example = blocks("README.md")
    compile(run, "README.md", "exec")  # examples/run_a_task.py is this, and is run
    without_download = "\n".join(line for line in example.splitlines() if "Hcompany" not in line)
    assert without_download != example
    scope: dict[str, object] = {}
    exec(compile(without_download, "README.md", "exec"), scope)
    (logits,) = scope["logits"]
    assert logits.shape == (3, scope["model"].config.vocab_size)


@pytest.mark.parametrize("page", ["docs/guides/add-a-task.md", "docs/guides/add-a-model.md"])
def test_guides_run(page):
    for example in blocks(page):
        exec(compile(example, page, "exec"), {"__name__": "guide"})


def test_what_is_shown_from_files_is_there():
    found = 0
    for path in (ROOT / "docs").rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'^--8<-- "(.*)"$', text, flags=re.MULTILINE):
            assert (ROOT / name).is_file(), f"{path.name} shows {name}"
            found += 1
        assert not re.search(r"^--8 |^--8<--(?! \")", text, flags=re.MULTILINE), f"{path.name} shows the line itself"
    assert found >= 4


def shown_commands() -> list[str]:
    """Every `holotron …` line of README and docs."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    return sorted({line for line in lines if line.startswith("holotron ")})


def test_every_command_that_is_shown_can_be_typed(tmp_path, monkeypatch):
    """Each is parsed as typed: its command exists, and takes these options. The files that it names are there."""
    found = shown_commands()
    monkeypatch.chdir(tmp_path)
    assert len(found) > 40
    commands = get_command(app)
    for line in found:
        command, words = commands, shlex.split(line, comments=True)[1:]
        for word in words:
            if re.fullmatch(r"[\w/.-]+\.(toml|jsonl?|txt)", word):
                path = tmp_path / word
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        while hasattr(command, "commands"):
            command, words = command.commands[words[0]], words[1:]
        if command.name != "bench" and words[:1] != ["train"]:  # `bench` and `plan train` have parsers of their own
            command.make_context(command.name, [word for word in words if word != "…"])


def test_marks_for_running_commands_fit_their_blocks():
    """`make test-docs` runs what is shown; a mark that no longer says anything about its block is found here."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text, found = page.read_text(encoding="utf-8"), 0
        for block in BLOCK.finditer(text):
            marks = MARK.findall(block[1])
            found += len(marks)
            assert all(what in block[3] for _, what, _ in marks), (page.name, marks)
        assert found == text.count("<!-- test-docs:"), page.name


def test_what_the_page_on_many_machines_shows_is_what_was_run():
    """On a cluster, by `make test-docs`; the commands that it noted are those of the page of now, and all went well."""
    noted = json.loads((ROOT / "benchmarks/results/docs-scale.json").read_text(encoding="utf-8"))["commands"]
    assert [one["command"] for one in noted] == [one.command for one in shown(["docs/scale.md"])]
    assert all(one["ok"] for one in noted)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "examples/README.md",
        *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
        "benchmarks/README.md",
    ],
)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page} points to {target}"
