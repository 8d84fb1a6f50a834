"""A comparison of runs as one page with plots, which needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from holotron.eval.compare import ALL, Rate, RunComparison
from holotron.eval.html_report import STYLE, table
from holotron.suites.kit.html import cells, report

# Told apart also by those who see fewer colours; the same hues on white and on near-black.
LIGHT = ("#0969a8", "#c4511b", "#2e7d32", "#8250a8", "#8a6d00", "#b3246b")
DARK = ("#58a6e8", "#f0883e", "#63b968", "#bf93e6", "#d5b443", "#f07ab0")
WIDTH, LEFT, RIGHT, HEAD, STEP, GAP = 900, 250, 24, 26, 16, 8
HEADS = ("", "right", "rate", "95%", "difference", "95%", "only first", "only this", "McNemar p")
Spread = tuple[float, float, float]  # a value between the ends of its interval: low, value, high


@dataclass(frozen=True)
class PlotRow:
    """A label, and a spread for each run that has one."""

    label: str
    spreads: Sequence[Spread | None]


def write_comparison(found: RunComparison, path: Path) -> None:
    """Write the page."""
    title = f"{found.about['benchmark']}: " + ", ".join(found.names)
    lead = f"{found.items} items, each asked of every run"
    lead += f"; {found.left_out} that a run has not are left out." if found.left_out else "."
    if len(found.names) > 1:
        lead += f" Differences are to {found.names[0]}, with 95% intervals of paired rates."
    body = [f"<h1>{escape(title)}</h1><p>{escape(lead)}</p>", _legend(found.names)]
    body.append(table(cells(HEADS, "th"), (map(escape, row) for row in totals(found))))
    for grouping in dict.fromkeys(grouping for grouping, _, _ in found.rows):
        some = [(group, rates) for name, group, rates in found.rows if name == grouping]
        if grouping != ALL:
            body.append(f"<h2>By {escape(grouping)}</h2>")
        rates_of = [PlotRow(f"{group} ({of[0].of})", [_spread(rate) for rate in of]) for group, of in some]
        body.append(f"<h3>Rates</h3>{dot_plot(rates_of, zero=False)}")
        changes = [PlotRow(group, [_change(rate) for rate in of]) for group, of in some]
        if any(spread for row in changes for spread in row.spreads):
            body.append(f"<h3>Differences to {escape(found.names[0])}</h3>{dot_plot(changes, zero=True)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    css = STYLE.read_text(encoding="utf-8") + _style()
    path.write_text(report(title, css, "".join(body)), encoding="utf-8")


def _legend(names: Sequence[str]) -> str:
    marks = (
        f'<span><svg width="14" height="14"><circle class="run{number % len(LIGHT)}" cx="7" cy="7" r="5"/></svg> '
        f"{escape(name)}</span>"
        for number, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(marks)}</p>'


def totals(found: RunComparison) -> list[tuple[str, ...]]:
    """What stands under HEADS for each run."""
    return [_total(name, rate) for name, rate in zip(found.names, found.total, strict=True)]


def _total(name: str, rate: Rate) -> tuple[str, ...]:
    low, high = rate.interval
    told = (name, f"{rate.right} of {rate.of}", f"{100 * rate.rate:.1f}%", f"{100 * low:.1f}–{100 * high:.1f}%")
    change = rate.change
    if change is None:
        return (*told, "", "", "", "", "")
    ends = "–" if change.interval is None else "{:+.1f} to {:+.1f}".format(*(100 * end for end in change.interval))
    counts = ("–" if count is None else str(count) for count in (change.only_first, change.only_second))
    p_value = "–" if change.p_value is None else f"{change.p_value:.2g}"
    return (*told, f"{100 * change.value:+.1f}", ends, *counts, p_value)


def _spread(rate: Rate) -> Spread | None:
    return (rate.interval[0], rate.rate, rate.interval[1]) if rate.of else None


def _change(rate: Rate) -> Spread | None:
    if rate.change is None:
        return None
    low, high = rate.change.interval or (rate.change.value, rate.change.value)
    return low, rate.change.value, high


def dot_plot(found: Sequence[PlotRow], *, zero: bool) -> str:
    """Rows of dots with intervals, in percent; zero: around a line at 0, else from 0 to 100."""
    widest = max((abs(end) for row in found for spread in row.spreads if spread for end in spread), default=0.0)
    reach = min(1.0, max(0.05, -(-widest * 20 // 1) / 20))
    low, high = (-reach, reach) if zero else (0.0, 1.0)

    def at(value: float) -> float:
        return LEFT + (max(low, min(value, high)) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    parts, y = list[str](), float(HEAD)
    for row in found:
        used = [(number, spread) for number, spread in enumerate(row.spreads) if spread]
        middle = y + STEP * len(used) / 2
        parts.append(f'<text x="{LEFT - 12}" y="{middle + 4:.1f}" text-anchor="end">{escape(row.label[:38])}</text>')
        for number, (start, value, end) in used:
            y += STEP
            place, colour = y - STEP / 2, f"run{number % len(LIGHT)}"
            parts.append(
                f'<line class="{colour}" x1="{at(start):.1f}" x2="{at(end):.1f}" y1="{place}" y2="{place}"/>'
                f'<circle class="{colour}" cx="{at(value):.1f}" cy="{place}" r="4.5"/>'
            )
        y += GAP
    ticks = [low + (high - low) * part / 4 for part in range(5)]
    grid = "".join(
        f'<line class="{"zero" if zero and not tick else "grid"}" x1="{at(tick):.1f}" x2="{at(tick):.1f}" '
        f'y1="{HEAD - 6}" y2="{y}"/><text class="tick" x="{at(tick):.1f}" y="{HEAD - 12}" text-anchor="middle">'
        f"{100 * tick:{'+.3g' if zero and tick else '.3g'}}%</text>"
        for tick in ticks
    )
    plot = f'<svg class="plot" viewBox="0 0 {WIDTH} {y + 4:.0f}" role="img">{grid}{"".join(parts)}</svg>'
    return f'<div class="wide">{plot}</div>'


def _style() -> str:
    def colours(palette: Sequence[str]) -> str:
        return "".join(f".run{number}{{stroke:{ink};fill:{ink}}}" for number, ink in enumerate(palette))

    return (
        ".plot{width:100%;min-width:44rem;height:auto}"
        ".plot text{font:13px system-ui,sans-serif;fill:currentColor}"
        ".plot .tick{font-size:11px;opacity:.7}.plot line{stroke-width:2}.plot .grid{stroke:currentColor;opacity:.15;"
        "stroke-width:1}.plot .zero{stroke:currentColor;opacity:.6;stroke-width:1}.legend span{margin-right:1.5rem}"
        "h2{font-size:1.15rem;margin-top:2rem}h3{font-size:.95rem;font-weight:500;opacity:.75;margin:.75rem 0 .25rem}"
        f"{colours(LIGHT)}@media(prefers-color-scheme:dark){{{colours(DARK)}}}"
    )
