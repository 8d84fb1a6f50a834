"""The plot of a run: what is read, where it is drawn, and what is said when there is nothing."""

from __future__ import annotations

import itertools
import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holotron.cli.main import app
from holotron.episodes.shards import ShardWriter
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.initialize import random_model
from holotron.model.text.policy_tokenizer import save_policy_texts
from holotron.train import plot, sft
from holotron.train.plot import PANELS, PLOT, PlotError, Run, draw, read_run, write_plot
from holotron.train.results import fill_card

from .samples import CONFIG, sample

SVG = "{http://www.w3.org/2000/svg}"


def line(step: int, loss: float, **more: Any) -> dict[str, Any]:
    return {"step": step, "loss": loss, "rate": 1e-3, "gradient": 0.5, "images_per_second": 100.0} | more


def note(folder: Path, *lines: dict[str, Any], torn: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / plot.METRICS).write_text("".join(json.dumps(each) + "\n" for each in lines) + torn)
    return folder


def panels(svg: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(svg).findall(f"{SVG}g")


def points(panel: ElementTree.Element, run: int = 0) -> list[tuple[float, float]]:
    drawn = panel.findall(f"{SVG}polyline")[run].attrib["points"]
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in drawn.split())]


def ticks(panel: ElementTree.Element, anchor: str) -> dict[float, float]:
    """Values written beside an axis, and where: x for those in the middle under it, y for those at its left."""
    found = {}
    for text in panel.findall(f"{SVG}text"):
        if text.get("text-anchor") == anchor and text.text not in (None, "step"):
            found[float(str(text.text).replace(",", ""))] = float(text.attrib["x" if anchor == "middle" else "y"])
    return found


def test_the_name_of_the_file_is_that_of_the_trainer() -> None:
    assert plot.METRICS == sft.METRICS
    assert {panel.field for panel in PANELS} <= set(sft.Progress.__dataclass_fields__)


def test_points_lie_where_the_ticks_say() -> None:
    run = Run("a", tuple(line(step, loss) for step, loss in ((500, 4.0), (1000, 2.0), (2000, 1.0))))
    for linear in (False, True):
        loss = panels(draw([run], linear=linear))[0]
        across, up = ticks(loss, "middle"), {value: y - 4 for value, y in ticks(loss, "end").items()}
        for (x, y), step, value in zip(points(loss), (500, 1000, 2000), (4.0, 2.0, 1.0), strict=True):
            assert x == pytest.approx(across[step], abs=0.2)
            assert y == pytest.approx(up[value], abs=0.2)
        first, second, third = (y for _, y in points(loss))
        # Halving is the same way down on a log axis, and half the way on a linear one.
        assert (third - second) / (second - first) == pytest.approx(0.5 if linear else 1.0, abs=0.01)


@pytest.mark.parametrize("low", [1e-7, 0.0031, 0.55, 12.0, 3e5])
@pytest.mark.parametrize("factor", [1.0, 1.03, 4.0, 70.0, 1e9])
@pytest.mark.parametrize("linear", [False, True])
def test_axes_are_readable_whatever_the_values(low: float, factor: float, linear: bool) -> None:
    loss = panels(draw([Run("a", (line(7, low), line(13, low * factor)))], linear=linear))[0]
    for anchor in ("middle", "end"):
        values = list(ticks(loss, anchor))
        assert 2 <= len(values) <= 12
        assert values == sorted(set(values))
        assert all(value == float(f"{value:.3g}") for value in values)  # round, also in a span of 4%
    places = sorted(ticks(loss, "end").values())
    assert min(after - before for before, after in itertools.pairwise(places)) > 8
    assert all(value == int(value) for value in ticks(loss, "middle"))
    assert all(plot.TOP - 0.1 <= y <= plot.PANEL_HEIGHT - plot.BOTTOM + 0.1 for _, y in points(loss))


def test_several_runs_have_a_legend_and_colours_of_their_own() -> None:
    runs = [Run(f"run <{number}> & more", (line(1, 1.0 + number), line(2, 0.5))) for number in range(8)]
    svg = draw(runs)
    legend = [text.text for text in ElementTree.fromstring(svg).findall(f"{SVG}text")]
    assert legend == [f"run <{number}> & more: step 2, loss 0.5" for number in range(8)]
    for panel in panels(svg):
        assert len({each.attrib["class"] for each in panel.findall(f"{SVG}polyline")}) == 8
    assert "prefers-color-scheme:dark" in svg


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    whole = [line(50, 2.0), line(100, 1.0)]
    folder = note(tmp_path / "run", *whole, torn='{"step": 150, "lo')
    assert read_run(folder) == Run("run", tuple(whole))
    # The run that goes on behind it writes into the same line.
    (folder / plot.METRICS).open("a").write(json.dumps(line(150, 0.9)) + "\n" + json.dumps(line(200, 0.8)) + "\n")
    assert [each["step"] for each in read_run(folder).lines] == [50, 100, 200]


def test_steps_that_were_done_again_count_once(tmp_path: Path) -> None:
    folder = note(tmp_path, line(50, 2.0), line(100, 1.5), line(150, 1.4), line(100, 1.6), line(150, 1.3))
    assert read_run(folder).points("loss") == [(50, 2.0), (100, 1.6), (150, 1.3)]


def test_what_was_not_measured_is_not_drawn() -> None:
    run = Run("a", ({"step": 1, "loss": math.nan}, {"step": 2, "loss": 3.0, "gradient": 0.0}))
    loss, rate, gradient, _ = panels(draw([run]))
    assert len(points(loss)) == 1
    assert rate.findall(f"{SVG}polyline") == gradient.findall(f"{SVG}polyline") == []


def test_many_lines_make_a_small_file_that_hides_no_spike() -> None:
    lines = [line(step, 100.0 if step == 77_777 else 1.0 + step % 7) for step in range(1, 100_001)]
    svg = draw([Run("long", tuple(lines))])
    assert len(svg) < 200_000
    heights = [y for _, y in points(panels(svg)[0])]
    assert heights.count(min(heights)) == 1
    assert sorted(heights)[1] - min(heights) > 50


def test_the_command(tmp_path: Path) -> None:
    first, second = note(tmp_path / "a" / "run", line(1, 2.0)), note(tmp_path / "b" / "run", line(1, 3.0))
    result = CliRunner().invoke(app, ["train", "plot", str(first)])
    assert (result.exit_code, result.stdout) == (0, f"{first / PLOT}\n")
    assert (first / PLOT).read_text() == draw([read_run(first)])
    both = tmp_path / "both.svg"
    result = CliRunner().invoke(app, ["train", "plot", str(first), str(second), "--out", str(both)])
    assert result.exit_code == 0
    assert all(str(folder) in both.read_text() for folder in (first, second))  # one name for two would tell nothing


def test_nothing_to_draw_is_told_in_a_line(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere", note(tmp_path / "empty", torn='{"st')):
        with pytest.raises(PlotError, match="log_every"):
            write_plot([folder], tmp_path / "out.svg")
        result = CliRunner().invoke(app, ["train", "plot", str(folder)])
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert str(folder) in result.stderr
    assert not (tmp_path / "out.svg").exists()


def test_a_stage_leaves_its_plot(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "data" / "part") as shards:
        for seed in range(10):
            shards.add(sample(seed))
    save_checkpoint(random_model(CONFIG, seed=1), tmp_path / "start")
    save_policy_texts(CONFIG, tmp_path / "start")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'name="a"\nstage="localization"\nstart="{tmp_path / "start"}"\nsteps=2\nworkers=0\nlog_every=1\n'
        f'dtype="float32"\n[[data]]\nshards="{tmp_path / "data"}"\n[batch]\ntokens=512\npatches=384\nlearned=96\n'
        "sequences=8\nimages=16\n[optimizer]\nrate=1e-3\nwarmup=1\n"
    )
    out = tmp_path / "run"
    result = CliRunner().invoke(app, ["train", "sft", str(recipe), "--out", str(out), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == f"how it went: {out / PLOT}"
    assert [x for x, _ in read_run(out).points("loss")] == [1, 2]
    assert all(len(points(panel)) == 2 for panel in panels((out / PLOT).read_text()))


def test_runs_of_online_rl_have_panels_of_their_own(tmp_path: Path) -> None:
    told = {"suite": "miniwob", "step": 1, "success_rate": 0.5, "episodes": 9}
    lines = [
        line(1, 0.1, success=0.25, even_success=0.4, entropy=1.0, steps_per_second=100.0, seconds=2.5, episodes=40),
        line(2, 0.1, success=0.75, even_success=0.5, entropy=0.5, steps_per_second=120.0, seconds=3.5, episodes=41),
    ]
    run = note(tmp_path / "rl", *lines)
    (run / "evaluations.jsonl").write_text(
        json.dumps(told) + "\n" + json.dumps({"step": 2, "error": "it ended"}) + "\n"
    )
    (run / "recipe.json").write_text("{}")
    drawn = panels(draw([read_run(run)]))
    titles = [panel.findtext(f"{SVG}text") for panel in drawn]
    alike, *drawn = drawn
    assert len(points(alike)) == 2
    assert titles[0] == "success, all tasks alike"
    assert titles[1:] == ["success of attempts", "success in evaluations", "entropy", "environment steps/s"]
    assert len(points(drawn[0])) == 2
    assert len(points(drawn[1])) == 1  # at the step whose weights were evaluated
    card = fill_card("<!-- results: runs -->\n<!-- end -->", [("runs", run)])
    assert "| rl | 2 | 81 | 6 | 50.0% | 50.0% |" in card
