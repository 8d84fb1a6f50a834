"""A page on which a person can judge samples: the pictures with the points drawn in, and what is asked and answered."""

from __future__ import annotations

import asyncio
import base64
import re
from dataclasses import replace
from html import escape
from pathlib import Path

from holotron.episodes.examples import Example
from holotron.suites.kit.html import report, rows
from holotron.suites.screens.generate import GroundSettings, ground_samples
from holotron.suites.screens.questions import pairs

POINT = re.compile(r'\{"x":(\d+),"y":(\d+)\}')
INKS = {"Find": "#e00000", "Read": "#0060ff", "What": "#00a030", "Screen": "#c000c0"}
STYLE = Path(__file__).with_name("viewer.css")


def write_view(path: Path, count: int, settings: GroundSettings) -> None:
    """Make `count` samples of the settings' mix and write them as one HTML file."""
    body = "".join(_sample(sample) for sample in asyncio.run(_take(count, settings)))
    path.write_text(report("Samples", STYLE.read_text(), body))


async def _take(count: int, settings: GroundSettings) -> list[Example]:
    seeds = range(settings.first, settings.first + count)
    return [sample async for sample in ground_samples(seeds, replace(settings, asks=1))]


def _sample(sample: Example) -> str:
    width = 320 if sample.about["size"][0] < 320 else 640
    picture = base64.b64encode(sample.turns[0].image or b"").decode()
    dots, lines = [], []
    for number, (said, answer) in enumerate(pairs(sample.turns[0]), 1):
        form = said.partition(":")[0]
        ink = INKS[form]
        for x, y in POINT.findall(f"{said} {answer}"):
            place = f"left:{int(x) / 10}%;top:{int(y) / 10}%;background:{ink}"
            dots.append(f'<span class="dot" style="{place}">{number if form != "Screen" else "·"}</span>')
        lines.append((f'<span style="color:{ink}">{number}</span>', escape(said), escape(answer)))
    about = escape(str({name: value for name, value in sample.about.items() if name != "writing"}))
    shot = f'<div class="shot" style="width:{width}px"><img src="data:image/png;base64,{picture}">{"".join(dots)}</div>'
    return (
        f'<div class="sample">{shot}<div><b>{escape(sample.kind)}</b> {about}<table>{rows(lines)}</table></div></div>'
    )
