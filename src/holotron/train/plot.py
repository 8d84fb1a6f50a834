"""What training runs wrote to metrics.jsonl as one picture: loss, rate, gradient and speed over steps, in plain SVG."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from holotron.train.results import METRICS
from holotron.train.suite_evaluation import RESULTS

PLOT = "training.svg"

WIDTH, HEADING, LINE = 900, 20, 22
PANEL_WIDTH, PANEL_HEIGHT = WIDTH // 2, 270
LEFT, RIGHT, TOP, BOTTOM = 66, 24, 34, 44
# On white and on near-black: the same hues, told apart also by those who see fewer colours.
LIGHT = ("#0969a8", "#c4511b", "#2e7d32", "#8250a8", "#8a6d00", "#b3246b")
DARK = ("#58a6e8", "#f0883e", "#63b968", "#bf93e6", "#d5b443", "#f07ab0")

Point = tuple[float, float]


class PlotError(ValueError):
    """There is nothing to draw."""


@dataclass(frozen=True)
class Run:
    """One run: its name and the lines of its evaluations and of its metrics, each by rising step."""

    name: str
    lines: tuple[dict[str, Any], ...]

    def points(self, field: str) -> list[Point]:
        """The field over the steps, where it is a finite number."""
        return [
            (line["step"], value)
            for line in self.lines
            if isinstance(value := line.get(field), int | float) and math.isfinite(value)
        ]


@dataclass(frozen=True)
class Axis:
    """From values to pixels, with the round values that are written beside it."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def share(self, value: float) -> float:
        """0 at the lower end, 1 at the upper."""
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return (value - low) / (high - low)


@dataclass(frozen=True)
class Panel:
    """One field of the metrics; on a log axis where small changes late matter as much as large ones early."""

    field: str
    title: str
    log: bool = False


PANELS = (
    Panel("loss", "loss", log=True),
    Panel("rate", "learning rate"),
    Panel("gradient", "gradient norm", log=True),
    Panel("images_per_second", "images/s"),
)
# Of online RL, whose loss says little: what attempts earn, how sure the policy is, and how fast they are played.
RL_PANELS = (
    Panel("even_success", "success, all tasks alike"),
    Panel("success", "success of attempts"),
    Panel("evaluated", "success in evaluations"),
    Panel("entropy", "entropy"),
    Panel("steps_per_second", "environment steps/s"),
)


def read_run(source: Path) -> Run:
    """The run of a folder, or of a file of metrics."""
    path = source / METRICS if source.is_dir() else source
    if not path.is_file():
        raise PlotError(f"there is no {path}; a run of `holotron train sft` writes it every `log_every` steps")
    lines: list[dict[str, Any]] = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
            step = int(line["step"])
        except (ValueError, KeyError, TypeError):
            continue  # torn: the run was killed while it wrote, or is writing now
        # A run that was killed goes on from its last state and does the steps behind it again.
        while lines and lines[-1]["step"] >= step:
            lines.pop()
        lines.append(line)
    if not lines:
        raise PlotError(f"{path} has no line of metrics; a run writes the first after `log_every` steps")
    name = source.resolve().name if source.is_dir() else source.stem.removesuffix("-metrics")
    told = path.with_name(RESULTS).read_text(encoding="utf-8").splitlines() if path.with_name(RESULTS).exists() else ()
    found = ({"step": each["step"], "evaluated": each.get("success_rate")} for each in map(json.loads, told))
    return Run(name, (*found, *lines))


def write_plot(sources: Sequence[Path], path: Path, *, linear: bool = False) -> Path:
    """Draw these runs into one file; its path."""
    runs = [read_run(source) for source in sources]
    if len({run.name for run in runs}) < len(runs):
        runs = [replace(run, name=str(source)) for run, source in zip(runs, sources, strict=True)]
    path.write_text(draw(runs, linear=linear), encoding="utf-8")
    return path


def draw(runs: Sequence[Run], *, linear: bool = False) -> str:
    """The SVG of some runs over each other."""
    chosen = RL_PANELS if all(run.points("success") for run in runs) else PANELS
    panels = [(each.title, [run.points(each.field) for run in runs], each.log and not linear) for each in chosen]
    return draw_panels([_summary(run) for run in runs], panels, "step")


def draw_panels(names: Sequence[str], panels: Sequence[tuple[str, Sequence[list[Point]], bool]], x_label: str) -> str:
    """Panels two by two, each a title and a line per name; True is for a log axis."""
    top = HEADING + LINE * len(names)
    height = top + -(-len(panels) // 2) * PANEL_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f'<style>{_style()}</style><rect class="ground" width="100%" height="100%"/>',
    ]
    for number, name in enumerate(names):
        y = HEADING + LINE * number
        parts.append(f'<line class="{_look(number)}" x1="{LEFT}" x2="{LEFT + 24}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT + 34}" y="{y + 4}">{escape(name)}</text>')
    for number, (title, lines, log) in enumerate(panels):
        x, y = number % 2 * PANEL_WIDTH, top + number // 2 * PANEL_HEIGHT
        parts.append(f'<g transform="translate({x} {y})">{_panel(title, lines, log, x_label)}</g>')
    return "\n".join([*parts, "</svg>\n"])


def _style() -> str:
    def colours(palette: Sequence[str]) -> str:
        return "".join(f".run{i}{{stroke:{ink}}}.end{i}{{fill:{ink}}}" for i, ink in enumerate(palette))

    return (
        "text{font:13px system-ui,sans-serif;fill:#24292f}.tick{font-size:12px;fill:#57606a}"
        ".title{font-weight:600}.ground{fill:#fff}.grid{stroke:#d8dee4}"
        "[class^=run]{fill:none;stroke-width:1.8;stroke-linejoin:round}.again{stroke-dasharray:5 3}"
        f"{colours(LIGHT)}@media(prefers-color-scheme:dark){{"
        f"text{{fill:#e6edf3}}.tick{{fill:#9aa4af}}.ground{{fill:#0d1117}}.grid{{stroke:#30363d}}{colours(DARK)}}}"
    )


def _look(number: int) -> str:
    """The classes of a run's line: when the colours are used up they come again, dashed."""
    return f"run{number % len(LIGHT)}" + (" again" if number >= len(LIGHT) else "")


def _summary(run: Run) -> str:
    last, losses = run.lines[-1]["step"], run.points("loss")
    return f"{run.name}: step {_number(last)}" + (f", loss {losses[-1][1]:.4g}" if losses else "")


def _panel(title: str, lines: Sequence[list[Point]], log: bool, x_label: str) -> str:
    if log:
        lines = [[point for point in line if point[1] > 0] for line in lines]
    points = [point for line in lines for point in line]
    heading = f'<text class="title" x="{LEFT}" y="{TOP - 14}">{escape(title)}{" (log)" if log else ""}</text>'
    right, base = PANEL_WIDTH - RIGHT, PANEL_HEIGHT - BOTTOM
    if not points:
        return f'{heading}<text class="tick" x="{LEFT}" y="{TOP + 20}">nothing noted</text>'
    most, values = max(5, *(x for x, _ in points)), [y for _, y in points]
    across = Axis(0, most, _linear_ticks(0, most, 6))
    up = _log_axis(min(values), max(values)) if log else _linear_axis(min(values), max(values))

    def place(point: Point) -> Point:
        return LEFT + across.share(point[0]) * (right - LEFT), base - up.share(point[1]) * (base - TOP)

    parts = [heading]
    for tick in up.ticks:
        y = place((0, tick))[1]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_number(tick)}</text>')
    for tick in across.ticks:
        x = LEFT + across.share(tick) * (right - LEFT)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{base + 5}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{base + 19}" text-anchor="middle">{_number(tick)}</text>')
    middle = (LEFT + right) / 2
    parts.append(f'<text class="tick" x="{middle}" y="{base + 35}" text-anchor="middle">{x_label}</text>')
    for number, line in enumerate(lines):
        if line:
            at = _thinned([place(point) for point in line])
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
            parts.append(f'<polyline class="{_look(number)}" points="{path}"/>')
            # Also all there is to see of a run that has noted a single step.
            x, y = at[-1]
            parts.append(f'<circle class="end{number % len(LIGHT)}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
    return "\n".join(parts)


def _thinned(points: Sequence[Point]) -> list[Point]:
    """The same picture with at most four points in each column of pixels: the first, the extremes, the last."""
    kept: list[Point] = []
    for _, group in groupby(points, key=lambda point: int(point[0])):
        column = list(group)
        heights = [y for _, y in column]
        chosen = {0, heights.index(min(heights)), heights.index(max(heights)), len(column) - 1}
        kept += [column[index] for index in sorted(chosen)]
    return kept


def _linear_axis(low: float, high: float) -> Axis:
    """From zero, to the round value above all."""
    low, high = min(0.0, low), max(0.0, high)
    if low == high:
        high = 1.0
    step = _round_step((high - low) / 5)
    first, last = math.floor(low / step), math.ceil(high / step)
    return Axis(first * step, last * step, tuple(index * step for index in range(first, last + 1)))


def _log_axis(low: float, high: float) -> Axis:
    """A little more than the values need; the ticks inside at powers of ten, or at more where there are too few."""
    room = max((high / low) ** 0.05, 1.02)
    low, high = low / room, high * room
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 4, 6, 8)):
        ticks = tuple(t for d in decades for digit in digits if low <= (t := digit * 10.0**d) <= high)
        if len(ticks) >= 4:
            every = -(-len(ticks) // 8)
            return Axis(low, high, ticks[::every], log=True)
    return Axis(low, high, _linear_ticks(low, high, 4), log=True)


def _linear_ticks(low: float, high: float, about: int) -> tuple[float, ...]:
    """Round values between the two."""
    step = _round_step((high - low) / about)
    return tuple(index * step for index in range(math.ceil(low / step), math.floor(high / step) + 1))


def _round_step(least: float) -> float:
    """The next of …, 1, 2, 5, 10, 20, …"""
    unit = 10.0 ** math.floor(math.log10(least))
    return next(digit * unit for digit in (1, 2, 5, 10) if digit * unit >= least * (1 - 1e-9))


def _number(value: float) -> str:
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return f"{value:,.6g}"
    digits, power = f"{value:.3e}".split("e")
    return f"{float(digits):g}e{int(power)}"
