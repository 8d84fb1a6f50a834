"""An evaluation's report as a page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from holotron.suites.kit.html import cells, report, rows

STYLE = Path(__file__).with_name("report.css")


def write_html(found: dict[str, Any], path: Path) -> None:
    """Write the page."""
    title = f"{found['benchmark']}, {found['policy']}"
    figures = "".join(_figure(name, part) for name, part in found["protocols"].items())
    figures += _groups(found.get("groups", {}))
    tasks = [_row(row) for row in sorted(found["tasks"], key=lambda row: -(row["success_rate"] or 0))]
    heads = cells(("task", "solved", "rate", "95%", "mean reward"), "th")
    body = (
        f"<h1>{escape(title)}</h1>{figures}<p>{found['infrastructure_failures']} episodes were lost to the "
        f"infrastructure. By task, {escape(found['protocol'])}:</p>"
        f"{table(heads, tasks)}"
    )
    path.write_text(report(title, STYLE.read_text(encoding="utf-8"), body), encoding="utf-8")


def _figure(name: str, part: dict[str, Any]) -> str:
    rate, (low, high) = part["success_rate"], part["interval"]
    return (
        f'<p><span class="big">{"–" if rate is None else f"{100 * rate:.1f}%"}</span> of {part["episodes"]} episodes '
        f"of {escape(name)} solved (95%: {100 * low:.1f} to {100 * high:.1f}), at most {part['max_steps']} steps each; "
        f"{part['missing']} episodes missing.</p>"
    )


def _groups(groups: dict[str, Any]) -> str:
    """A table of what tasks have in common, where a suite says so."""
    lines = [_row({"task": group, "mean_reward": None, **part})[:-1] for group, part in groups.items()]
    heads = cells(("group", "solved", "rate", "95%"), "th")
    return table(heads, lines) if lines else ""


def table(heads: str, lines: Iterable[Iterable[str]]) -> str:
    """A table that keeps its width where there is less room."""
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows(lines)}</tbody></table></div>'


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    low, high = (100 * value for value in row["interval"])
    rate = 100 * (row["success_rate"] or 0)
    spread = f'<b style="left:{low:.1f}%;width:{high - low:.1f}%"></b>'
    bar = f'<div class="bar"><i style="width:{rate:.1f}%"></i>{spread}</div>'
    reward = "–" if row["mean_reward"] is None else f"{row['mean_reward']:.2f}"
    solved = f"{row['successes']} of {row['episodes']}"
    return escape(row["task"]), solved, bar, f"{low:.0f}–{high:.0f}%", reward
