"""Task lists and cards from what evaluations and runs have left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holotron.cli.main import app
from holotron.train.results import ResultsError, fill_card, hard_tasks, read_report

ROOT = Path(__file__).resolve().parents[2]


def report(solved: dict[str, tuple[int, int]]) -> dict[str, Any]:
    rows = [{"task": name, "successes": right, "episodes": total} for name, (right, total) in solved.items()]
    right, total = (sum(part[index] for part in solved.values()) for index in (0, 1))
    figures = {"successes": right, "episodes": total, "interval": [0.25, 0.75], "tasks": rows}
    return {"benchmark": "miniwob", "protocols": {"strict-125": figures}}


def test_tasks_that_are_not_solved_reliably() -> None:
    found = report({"always": (5, 5), "mostly": (4, 5), "often": (3, 5), "never": (0, 5), "missing": (0, 0)})
    assert hard_tasks(found, "strict-125", 0.8) == ["mostly", "often", "never"]
    assert hard_tasks(found, "strict-125", 0.0) == ["never"]
    with pytest.raises(ResultsError, match="says nothing about webgum-56"):
        hard_tasks(found, "webgum-56", 0.8)


def test_a_list_has_only_tasks_with_a_teacher(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report({"draw-circle": (0, 5), "click-link": (1, 5)})))
    out = tmp_path / "lists" / "hard.txt"
    command = ["train", "hard-tasks", str(tmp_path), "--protocol", "strict-125", "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert out.read_text() == "click-link\n"
    done = CliRunner().invoke(app, ["train", "hard-tasks", str(tmp_path / "nowhere"), "--out", str(out)])
    assert (done.exit_code, "nowhere" in done.stderr) == (2, True)


def test_a_card_is_filled_and_filled_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.json").write_text('{"name": "navigation"}')
    (run / "metrics.jsonl").write_text('{"step": 1}\n{"step": 10000, "seconds": 1050.4, "loss": 0.1234}\n')
    (tmp_path / "report.json").write_text(json.dumps(report({"a": (1, 2)})))
    places = "".join(f"<!-- results: {name} -->\n<!-- end -->\n" for name in ("stages", "miniwob", "grounding"))
    card = tmp_path / "card.md"
    card.write_text(f"# Card\n{places}the end\n")
    grounding = ROOT / "benchmarks" / "results" / "nano" / "grounding.json"
    results = [f"stages={run}", f"stages={run}", f"miniwob={tmp_path}", f"grounding={grounding}"]
    command = ["train", "card", str(card), "--out", str(card)]
    for _ in range(2):  # into itself, with what it had replaced
        done = CliRunner().invoke(app, [*command, *(word for result in results for word in ("--result", result))])
        assert done.exit_code == 0, done.output
    text = card.read_text()
    assert text.count("| navigation | 10,000 | 1,050 | 0.123 |") == 2
    assert text.count("| strict-125 | 50.0% (25.0 to 75.0) | 2 |") == 1
    assert text.count("| packages | 40.2% (31.0 to 50.2) | 97 |") == 1
    assert text.count("<!-- end -->") == text.count("| --- | --- |") == 3
    assert text.startswith("# Card\n")
    assert text.endswith("the end\n")


def test_a_card_says_what_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report({"a": (1, 2)})))
    place = "<!-- results: miniwob -->\n<!-- end -->\n"
    with pytest.raises(ResultsError, match="no place <!-- results: pages -->"):
        fill_card(place, [("pages", tmp_path), ("miniwob", tmp_path)])
    with pytest.raises(ResultsError, match="a place for miniwob, and no result"):
        fill_card(place, [])
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(ResultsError, match="a report with a is of no kind"):
        fill_card(place, [("miniwob", tmp_path / "other.json")])
    with pytest.raises(ResultsError, match="results of different kinds"):
        fill_card(place, [("miniwob", tmp_path), ("miniwob", ROOT / "benchmarks/results/nano/grounding.json")])
    with pytest.raises(ResultsError, match="is no report"):
        read_report(tmp_path / "none.json")
