"""Line plots as SVG, for results that are looked at in a browser or a README. No library: three shapes are enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

COLOURS = ("#0b6e99", "#c4511b", "#3f7f3f", "#7a4fa3", "#a0a000")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 460, 330, 58, 62, 52


@dataclass(frozen=True)
class Series:
    """A named line through points (x, y)."""

    name: str
    points: list[tuple[float, float]]


def line_plot(panels: list[tuple[str, list[Series]]], *, title: str, x_label: str) -> str:
    """Panels side by side, each with its own vertical axis from zero."""
    legend = 24 * max((len(series) for _, series in panels), default=0)
    width, height = WIDTH * len(panels), HEIGHT + legend
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="13"><rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="16" y="26" font-size="16" font-weight="bold">{escape(title)}</text>',
    ]
    for number, (label, series) in enumerate(panels):
        parts.append(f'<g transform="translate({number * WIDTH} 0)">{_panel(label, series, x_label)}</g>')
    return "".join([*parts, "</svg>\n"])


def _panel(label: str, series: list[Series], x_label: str) -> str:
    points = [point for line in series for point in line.points]
    x_most, y_most = (_round_up(max((p[axis] for p in points), default=1.0)) for axis in (0, 1))
    right, base = WIDTH - 24, HEIGHT - BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + x / x_most * (right - LEFT), base - y / y_most * (base - TOP)

    parts = [f'<text x="{LEFT}" y="{TOP - 14}" fill="#333">{escape(label)}</text>']
    for tick in range(5):
        x, y = place(x_most * tick / 4, y_most * tick / 4)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{y_most * tick / 4:g}</text>')
        parts.append(f'<text x="{x:.1f}" y="{base + 20}" text-anchor="middle" fill="#555">{x_most * tick / 4:g}</text>')
    middle = (LEFT + right) / 2
    parts.append(f'<text x="{middle}" y="{base + 40}" text-anchor="middle" fill="#333">{escape(x_label)}</text>')
    for number, line in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        at = [place(x, y) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in at]
        y = HEIGHT + 24 * number
        parts.append(f'<circle cx="{LEFT}" cy="{y}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 14}" y="{y + 5}">{escape(line.name)}</text>')
    return "".join(parts)


def _round_up(value: float) -> float:
    """The next number that makes round ticks when divided by four."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * unit >= value)
