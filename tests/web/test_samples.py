"""The page of samples: every point and box where it is, what is said is text, and nothing else is asked for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from holotron.agent.policy_format import find_format
from holotron.episodes.datasets.importer import import_dataset
from holotron.episodes.datasets.settings import ImportSettings
from holotron.episodes.store import EpisodeStore
from holotron.web.samples import write_samples
from tests.episodes import dataset_files as made
from tests.web.browser import watching

HOSTILE = '<img src=x onerror=alert(1)> "quoted" &amp;'


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    path = made.screenspot(tmp_path / "source", "pro")
    records = json.loads(path.read_text())
    records[0]["instruction"] = HOSTILE
    records.append({**records[0], "instruction": "gone", "img_filename": "gone.png"})
    path.write_text(json.dumps(records))
    settings = ImportSettings("screenspot", path, most_bad=0.5, space="pixels", boxes="xyxy")
    import_dataset(settings, tmp_path / "out")
    return EpisodeStore(tmp_path / "out")


def test_points_and_boxes_are_drawn_where_they_are(store: EpisodeStore, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert write_samples(store, page, find_format("ui-tars"), 10) == 4
    asyncio.run(_look(page))


async def _look(page: Path) -> None:
    async with watching(page.as_uri()) as watched:
        opened = watched.page
        await opened.goto(page.as_uri())
        await opened.wait_for_selector(".sample .box")
        sample = opened.locator(".sample", has_text="onerror")
        assert await sample.locator(".sentence").inner_text() == HOSTILE
        shot, box, dot = [
            await sample.locator(part).bounding_box() for part in ("img", "polygon.box", ".marks circle.dot")
        ]
        assert shot is not None
        assert box is not None
        assert dot is not None
        scale = shot["width"] / made.WIDTH
        wanted = {"x": 100, "y": 50, "width": 200, "height": 40}  # of the record
        assert box["x"] - shot["x"] == pytest.approx(scale * wanted["x"], abs=2)
        assert box["y"] - shot["y"] == pytest.approx(scale * wanted["y"], abs=2)
        assert box["width"] == pytest.approx(scale * wanted["width"], abs=3)
        assert dot["x"] + dot["width"] / 2 - shot["x"] == pytest.approx(scale * 200, abs=2)
        assert dot["y"] + dot["height"] / 2 - shot["y"] == pytest.approx(scale * 70, abs=2)
        assert "click(point=" in await sample.locator("pre").inner_text()
        told = await opened.inner_text(".cards")
        assert "image missing" in told
        assert "photoshop_linux.json[4]" in told
        assert "linux-icon" in told
