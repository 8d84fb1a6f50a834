"""A run of online RL in the viewer: its figures as they come, success by task, and episodes by group."""

from __future__ import annotations

import json
import math
from pathlib import Path

from playwright.async_api import Page

from holotron.episodes.store import EpisodeStore
from holotron.web.report import write_report
from tests.web import samples
from tests.web.browser import serving, text, until, watching


def tell(run: Path, step: int, success: float, **more: object) -> None:
    line = {"step": step, "success": success, "reward": success - 0.1, "tasks": {f"task-{step}": success, "both": 0.5}}
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(line | more) + "\n")


async def figure(page: Page, name: str) -> str:
    return await text(page, f"[data-figure={name}]")


async def test_a_run_is_shown_with_its_figures_tasks_and_groups(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path / "episodes")
    for group in (3, 12, 12):
        begun = samples.begin(
            store, "Choose", "task-2", 1e9, seed=group, sample=store_size(store), extra={"group": group}
        )
        begun.finish(samples.Outcome(reason="done", success=True, reward=1.0))
        begun.close()
    tell(tmp_path, 1, 0.25, clipped=0.031, loss=math.nan, staleness=1.0)
    tell(tmp_path, 2, 0.5, parts={"rollout": 8.731, "learning": 2.0})
    with serving(store) as home:
        async with watching(home) as watched:
            page = await watched.open()
            assert await text(page, "#training-title") == "Training iteration 2"
            assert await figure(page, "success") == "Success 50.0%"
            assert await figure(page, "clipped") == "Clipped 3.1%"  # the last that was told
            assert await figure(page, "'seconds of rollout'") == "Seconds of rollout 8.73"
            assert await page.locator("[data-figure=entropy], [data-figure=loss]").count() == 0
            tell(tmp_path, 3, 0.75)
            await until(page, "document.querySelector('#training-step').textContent === 'iteration 3'")
            assert await figure(page, "reward") == "Reward 0.65"
            points = await page.get_attribute("[data-figure=success] polyline", "points")
            assert points == "0.0,30.0 60.0,16.0 120.0,2.0"
            # A run that goes on from an earlier state tells the rest anew.
            (tmp_path / "metrics.jsonl").write_text("")
            tell(tmp_path, 1, 0.25)
            await until(page, "document.querySelector('#training-step').textContent === 'iteration 1'")
            tell(tmp_path, 2, 0.125)
            await until(page, "document.querySelector('[data-figure=success]').textContent.includes('12.5%')")
            await chosen(page)
            assert not watched.problems

    async with watching(write_report(store, tmp_path / "report.html").page.as_uri()) as watched:
        page = await watched.open()
        assert await figure(page, "success") == "Success 12.5%"
        await chosen(page)


async def chosen(page: Page) -> None:
    """By group and by task."""
    assert await page.locator("#group option").all_inner_texts() == ["All groups", "3 (1)", "12 (2)"]
    await page.select_option("#group", "12")
    assert await page.locator(".row").count() == 2
    assert "group 12" in await text(page, ".row >> nth=0")
    await page.click("#training details summary")
    assert await text(page, ".task-share >> nth=0") == "task-2 12.5%"
    await page.click(".task-share >> nth=0")
    assert await page.locator(".row").count() == 3


def store_size(store: EpisodeStore) -> int:
    return len(list(store.list_episodes()))


def test_episodes_of_no_run_have_no_training(tmp_path: Path) -> None:
    from holotron.web.catalog import Catalog

    catalog = Catalog(EpisodeStore(tmp_path / "episodes"))
    assert catalog.training.lines() == []
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n[3]\n{"step": 2, "tasks": {}, "success": 1')
    assert catalog.training.lines() == []  # of a supervised stage, of something else, and torn
    tell(tmp_path, 5, 1.0)
    assert catalog.training.last == 0  # behind the torn line
    tell(tmp_path, 6, 1.0)
    assert [line["step"] for line in catalog.training.lines(5)] == [6]
