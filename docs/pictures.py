"""Remakes the pictures of README and docs from a real run: `make pictures`.

The bundled policy plays the tasks of `holotron demo` in a real Chromium. The viewer shows one of its episodes, and the
GIF is the film of one. Nothing in them is drawn by hand.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import async_playwright

from holotron.env.browser.chromium import require_chromium
from holotron.episodes.store import EpisodeStore

IMAGES = Path(__file__).parent / "images"
VIEWED, VIEWED_STEP = "login", 2  # the episode in the viewer, and its step that is shown
FILMED = "search"


async def draw_viewer(report: Path, episode: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=str(require_chromium()), args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        await page.goto(f"{report.resolve().as_uri()}#{episode}/{VIEWED_STEP}")
        await page.wait_for_function("document.images.length && [...document.images].every((image) => image.complete)")
        await page.wait_for_timeout(1000)  # for the mark to come to rest
        await page.screenshot(path=IMAGES / "viewer.png")
        await browser.close()


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name) / "demo"
        holotron = [sys.executable, "-m", "holotron.cli.main"]
        subprocess.run([*holotron, "demo", "--out", str(folder), "--no-open"], check=True)
        episodes = {info.task.name: info for info in EpisodeStore(folder).list_episodes()}
        asyncio.run(draw_viewer(folder / "report.html", episodes[VIEWED].id))
        film = [*holotron, "film", str(folder), episodes[FILMED].id, "--out", str(IMAGES / "episode.gif")]
        subprocess.run(film, check=True)


if __name__ == "__main__":
    main()
