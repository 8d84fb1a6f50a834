"""An evaluation's report as a page that needs nothing but itself."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } .big { font-size: 2.6rem; font-weight: 700; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .5rem;
  border-bottom: 1px solid color-mix(in srgb, currentColor 15%, transparent); }
.bar { position: relative; height: .7rem; min-width: 8rem; border-radius: .35rem;
  background: color-mix(in srgb, currentColor 12%, transparent); }
.bar i { position: absolute; inset: 0 auto 0 0; border-radius: .35rem; background: #2b8a5c; }
.bar b { position: absolute; top: .28rem; height: .14rem; background: currentColor; opacity: .55; }
"""


def write_html(report: dict[str, Any], path: Path) -> None:
    """Write the page."""
    rows = "\n".join(_row(row) for row in sorted(report["tasks"], key=lambda row: -(row["success_rate"] or 0)))
    title = f"{report['benchmark']}, {report['policy']}"
    figures = "\n".join(_figure(name, part) for name, part in report["protocols"].items())
    page = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>
<style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1>
{figures}
<p>{report["infrastructure_failures"]} episodes were lost to the infrastructure. By task,
 {escape(report["protocol"])}:</p>
<table><thead><tr><th>task<th>solved<th>rate<th>95%<th>mean reward</tr></thead><tbody>
{rows}
</tbody></table></body></html>
"""
    path.write_text(page, encoding="utf-8")


def _figure(name: str, part: dict[str, Any]) -> str:
    rate, (low, high) = part["success_rate"], part["interval"]
    return (
        f'<p><span class="big">{"–" if rate is None else f"{100 * rate:.1f}%"}</span> {escape(name)}: '
        f"({100 * low:.1f} to {100 * high:.1f}, 95%) of {part['episodes']} episodes solved, at most "
        f"{part['max_steps']} steps each; {part['missing']} episodes missing.</p>"
    )


def _row(row: dict[str, Any]) -> str:
    low, high = (100 * value for value in row["interval"])
    rate = 100 * (row["success_rate"] or 0)
    spread = f'<b style="left:{low:.1f}%;width:{high - low:.1f}%"></b>'
    bar = f'<div class="bar"><i style="width:{rate:.1f}%"></i>{spread}</div>'
    reward = "–" if row["mean_reward"] is None else f"{row['mean_reward']:.2f}"
    return (
        f"<tr><td>{escape(row['task'])}<td>{row['successes']} of {row['episodes']}<td>{bar}"
        f"<td>{low:.0f}–{high:.0f}%<td>{reward}</tr>"
    )
