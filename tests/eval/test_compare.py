"""Runs on the same items compared item by item: the figures by hand, and what is refused."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holotron.cli.main import app
from holotron.eval.compare import CompareError, compare, read_report
from holotron.eval.compare_page import write_comparison
from holotron.eval.html_report import write_html
from holotron.eval.paired import Pair, bonett_price, difference, mcnemar
from tests.env.driver import World
from tests.env.site import Site
from tests.suites.miniwob_driver import needs_chromium

ROOT = Path(__file__).parents[2]


def grounding(path: Path, policy: str, right: str, **about: Any) -> Path:
    """A report of a grounding benchmark with an item for each letter: y is right."""
    results = [
        {"id": f"i{number}", "right": letter == "y", "groups": {"kind": ["icon" if number % 2 else "text"]}}
        for number, letter in enumerate(right)
    ]
    path.write_text(json.dumps({"benchmark": "webclick", "policy": policy, "results": results, **about}))
    return path


def test_mcnemar_and_intervals_by_hand() -> None:
    assert mcnemar(0, 0) == mcnemar(3, 3) == 1.0
    assert mcnemar(1, 5) == mcnemar(5, 1) == 2 * (1 + 6) / 2**6
    assert mcnemar(0, 10) == 2 / 2**10
    assert 0 < mcnemar(1000, 1400) < 1e-10
    low, high = bonett_price(1, 5, 20)
    middle, spread = (6 - 2) / 22, 1.959964 * math.sqrt((8 / 22 - (4 / 22) ** 2) / 22)
    assert (low, high) == pytest.approx((middle - spread, middle + spread))
    # The interval of one item says next to nothing.
    assert bonett_price(0, 1, 1)[1] - bonett_price(0, 1, 1)[0] > 1
    found = difference([Pair((1, 1), (1, 1))] * 14 + [Pair((1, 0), (1, 1))] + [Pair((0, 1), (1, 1))] * 5)
    assert (round(found.value, 9), found.only_first, found.only_second, found.p_value) == (0.2, 1, 5, 14 / 64)
    tasks = [Pair((right, right + 1), (5, 5)) for right in (0, 1, 2, 3, 4)] + [Pair((4, 4), (5, 5))]
    found = difference(tasks)
    assert found.value == pytest.approx(5 / 30)
    assert found.interval is not None
    assert 0.05 < found.interval[0] < found.value < found.interval[1] < 0.201
    assert found.p_value is None
    assert difference(tasks[:2]).interval is None


def test_runs_are_compared_by_item_and_group(tmp_path: Path) -> None:
    first = grounding(tmp_path / "a.json", "small", "yynnyynn")
    second = grounding(tmp_path / "b.json", "large", "yyyyyyny")
    found = compare([read_report(first), read_report(second)])
    assert (found.names, found.items, found.left_out) == (("small", "large"), 8, 0)
    small, large = found.total
    assert (small.right, large.right, small.change) == (4, 7, None)
    assert large.change is not None
    assert (large.change.value, large.change.only_first, large.change.only_second) == (0.375, 0, 3)
    assert large.change.p_value == mcnemar(0, 3) == 0.25
    groups = {group: [rate.right for rate in rates] for grouping, group, rates in found.rows if grouping == "kind"}
    assert groups == {"icon": [2, 4], "text": [2, 3]}
    write_comparison(found, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count('<svg class="plot"') == 4
    assert "+37.5" in page
    assert json.loads(json.dumps(found.to_dict()))["rows"][0]["runs"][1]["change"]["only_second"] == 3


@needs_chromium
def test_pages_fit_a_narrow_screen(tmp_path: Path) -> None:
    """Tables and plots move by themselves, and letters in plots can still be read."""
    first, second = (grounding(tmp_path / f"{name}.json", f"a-policy-{name}", "yynnyynn") for name in "ab")
    write_comparison(compare([read_report(first), read_report(second)]), tmp_path / "compared.html")
    rate = {"success_rate": 0.5, "successes": 1, "episodes": 2, "interval": [0.1, 0.9]}
    tasks = [rate | {"task": "a-task-with-a-long-name", "mean_reward": 0.5}]
    protocols = {"browsergym-125": rate | {"max_steps": 10, "missing": 0}}
    about = {"benchmark": "miniwob", "policy": "small", "protocol": "browsergym-125", "infrastructure_failures": 0}
    write_html(about | {"tasks": tasks, "protocols": protocols}, tmp_path / "report.html")
    pages = {f"/{name}": (tmp_path / f"{name}.html").read_text() for name in ("compared", "report")}

    async def widths(origin: str) -> list[tuple[float, float]]:
        found = []
        async with world.env(origin, width=390, height=800) as env:
            for path in pages:
                await env.goto(f"{origin}{path}")
                letter = "document.querySelector('.plot .tick')?.getBoundingClientRect().height ?? 99"
                found.append(tuple(await env.evaluate(f"[document.documentElement.scrollWidth, {letter}]")))
        return found

    world = World()
    try:
        with Site(dict(pages)) as site:
            found = world.run(widths(site.origin))
    finally:
        world.close()
    assert all(width == 390 and letter > 8 for width, letter in found)


def test_what_is_not_comparable_is_refused_with_what_differs(tmp_path: Path) -> None:
    first = read_report(grounding(tmp_path / "a.json", "small", "yynn"))
    longer = read_report(grounding(tmp_path / "b.json", "large", "yynnyy"))
    with pytest.raises(CompareError, match=r"2 items are only in large, such as i4, i5; --common"):
        compare([first, longer])
    found = compare([first, longer], common=True)
    assert (found.items, found.left_out) == (4, 2)
    other = read_report(grounding(tmp_path / "c.json", "large", "yynn", benchmark="screenspot"))
    with pytest.raises(CompareError, match="benchmark is 'webclick' in small and 'screenspot' in large"):
        compare([first, other], common=True)
    (tmp_path / "d.json").write_text('{"seconds": 3}')
    for name, told in (("d.json", "it has none of results, tasks"), ("gone.json", "cannot be read")):
        with pytest.raises(CompareError, match=told):
            read_report(tmp_path / name)
    (tmp_path / "d.json").write_text('{"results": [{"id": 3}]}')
    with pytest.raises(CompareError, match="a form that is not known"):
        read_report(tmp_path / "d.json")


def test_reports_of_every_kind_are_read(tmp_path: Path) -> None:
    rows = [{"task": "a", "episodes": 2, "successes": 1}, {"task": "b", "episodes": 3, "successes": 3}]
    suite: dict[str, Any] = {"benchmark": "miniwob", "protocol": "strict-125", "policy": "p", "tasks": rows}
    (tmp_path / "tasks.json").write_text(json.dumps(suite))
    assert {name: (item.right, item.of) for name, item in read_report(tmp_path / "tasks.json").items.items()} == {
        "a": (1, 2),
        "b": (3, 3),
    }
    rows[0]["solved_by_seed"], rows[1]["solved_by_seed"] = {"1": True, "2": False}, {}  # type: ignore[assignment]
    (tmp_path / "seeds.json").write_text(json.dumps(suite))
    found = read_report(tmp_path / "seeds.json")
    assert {name: item.right for name, item in found.items.items()} == {"a/1": 1, "a/2": 0}
    assert found.about == {"benchmark": "miniwob", "protocol": "strict-125"}
    assert {grouping for grouping, _, _ in compare([found, found]).rows} == {"all", "task"}
    rows[0] |= {"groups": ["hard"], "solved_by_seed": {"1": True}}  # type: ignore[dict-item]
    rows[1] |= {"groups": ["hard"], "solved_by_seed": {"1": False}}  # type: ignore[dict-item]
    (tmp_path / "seeds.json").write_text(json.dumps(suite))
    found = read_report(tmp_path / "seeds.json")
    assert [row[:2] for row in compare([found, found]).rows] == [("all", "all"), ("group", "hard")]
    scores = [{"condition": "kept", "asked_at": 5, "right": 3, "trials": 8}]
    (tmp_path / "recall.json").write_text(json.dumps({"benchmark": "recall", "model": "p", "scores": scores}))
    assert read_report(tmp_path / "recall.json").items["kept at 5"].of == 8


def test_the_command_on_committed_reports(tmp_path: Path) -> None:
    results = ROOT / "benchmarks" / "results" / "nano"
    reports = [str(results / name) for name in ("grounding.json", "grounding-steady.json")]

    def holotron(*words: object) -> Any:
        return CliRunner(env={"COLUMNS": "120"}).invoke(app, ["eval", "compare", *map(str, words)])

    result = holotron(*reports, "--out", tmp_path / "page.html")
    assert result.exit_code == 2
    assert "only in holotron-nano, such as" in result.stderr
    result = holotron(*reports, "--common", "--out", tmp_path / "page.html", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["items"] + found["left_out"] == len(
        {
            json.dumps([each[key] for key in ("source", "seed", "kind", "description", "box")])
            for path in reports
            for each in json.loads(Path(path).read_text())["questions"]
        }
    )
    assert (tmp_path / "page.html").exists()
    assert holotron(reports[0]).exit_code == 2


def test_folders_of_runs_are_compared_on_a_narrow_terminal(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        seeds = {str(seed): True for seed in range(3)}
        tasks = [{"task": "click-test", "solved_by_seed": seeds, "success_rate": 1.0}]
        found = {"benchmark": "miniwob", "policy": f"holotron-nano-{name}", "tasks": tasks}
        (tmp_path / name / "report.json").write_text(json.dumps(found), encoding="utf-8")
    words = ["eval", "compare", str(tmp_path / "first"), str(tmp_path / "second"), "--out", str(tmp_path / "page.html")]
    result = CliRunner(env={"COLUMNS": "60"}).invoke(app, words)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.split()[:2] == ["holotron-nano-first", "holotron-nano-second"]
    assert re.search(r"^right +3 of 3 +3 of 3 *$", result.stdout, re.MULTILINE)
