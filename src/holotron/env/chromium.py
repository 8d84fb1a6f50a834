"""Where a Chromium might be on this machine, and how it is started."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

VARIABLE = "HOLOTRON_CHROMIUM"
COMMANDS = (
    "chromium",
    "chromium-browser",
    "chromium-headless-shell",
    "google-chrome",
    "google-chrome-stable",
)
# What Playwright's own downloads are called, old and new.
PLAYWRIGHT_BINARIES = ("chrome", "headless_shell", "chrome-headless-shell")


def find_chromium() -> tuple[Path | None, str]:
    """The browser to use and how it was found, or None and where it was looked for.

    What the user names comes first, and if that is wrong nothing else is tried: the wrong browser would be a surprise.
    """
    if named := os.environ.get(VARIABLE):
        path = Path(shutil.which(named) or named).expanduser()
        if _runnable(path):
            return path, f"${VARIABLE}"
        return None, f"${VARIABLE} is {named!r}, which is no program"
    for command in COMMANDS:
        if location := shutil.which(command):
            return Path(location), "on the PATH"
    cache = playwright_cache()
    for name in PLAYWRIGHT_BINARIES:
        for path in sorted(cache.glob(f"chromium*/*/{name}"), reverse=True):
            if _runnable(path):
                return path, "in Playwright's cache"
    return None, f"not on the PATH, not in {cache}, and ${VARIABLE} is not set"


def launch_arguments() -> list[str]:
    """What a Chromium is started with: nothing in the background, nothing that changes pixels from run to run."""
    arguments = [
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--font-render-hinting=none",
        "--force-color-profile=srgb",
    ]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # Chromium refuses to sandbox itself as root
    return arguments


def playwright_cache() -> Path:
    return Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or "~/.cache/ms-playwright").expanduser()


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
