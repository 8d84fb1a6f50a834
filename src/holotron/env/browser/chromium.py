"""Where a Chromium might be on this machine, and how it is started."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from holotron.env.errors import BrowserMissing

VARIABLE = "HOLOTRON_CHROMIUM"
# The headless shell first: it draws the same pixels with less memory and starts sooner.
COMMANDS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
# How a browser with a window is had, where the headless shell is all there is.
WINDOW_FIX = "python -m playwright install --with-deps chromium"
INSTALL = "python -m holotron.env.browser.install"
# What Playwright's own downloads are called, old and new.
PLAYWRIGHT_BINARIES = ("chrome-headless-shell", "headless_shell", "chrome")


def find_chromium(*, window: bool = False) -> tuple[Path | None, str]:
    """The browser to use and how it was found, or None and where it was looked for.

    With `window` it must be one that can be seen, which the headless shell cannot.
    What the user names comes first, and if that is wrong nothing else is tried: the wrong browser would be a surprise.
    """
    if named := os.environ.get(VARIABLE):
        path = Path(shutil.which(named) or named).expanduser()
        if _runnable(path):
            return path, f"${VARIABLE}"
        return None, f"${VARIABLE} is {named!r}, which is no program"
    for command in COMMANDS:
        if window and _is_shell(command):
            continue
        if location := shutil.which(command):
            return Path(location), "on the PATH"
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or "~/.cache/ms-playwright").expanduser()
    for name in PLAYWRIGHT_BINARIES:
        if window and _is_shell(name):
            continue
        for path in sorted(cache.glob(f"chromium*/*/{name}"), reverse=True):
            if _runnable(path):
                return path, "in Playwright's cache"
    return None, f"not on the PATH, not in {cache}, and ${VARIABLE} is not set"


def require_chromium(*, window: bool = False) -> Path:
    """The browser to use; BrowserMissing, with the way out, where there is none, or no screen for its window."""
    path, how = find_chromium(window=window)
    if path is None and window and not os.environ.get(VARIABLE):
        raise BrowserMissing(f"a browser with a window is needed, and there is none here: {WINDOW_FIX}")
    if path is None:
        raise BrowserMissing(f"there is no Chromium ({how}); {INSTALL} puts one here, `holotron doctor` tells more")
    if window and not has_screen():
        raise BrowserMissing("a browser with a window needs a screen, and neither $DISPLAY nor $WAYLAND_DISPLAY is set")
    return path


def has_screen() -> bool:
    """Whether windows can be shown."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _is_shell(name: str) -> bool:
    return "shell" in name


def launch_arguments() -> list[str]:
    """What a Chromium is started with: nothing in the background, nothing that changes pixels from run to run."""
    arguments = [
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--autofill-server-url=about:blank",  # else newer ones ask a service what each form's fields are
        "--no-first-run",
        "--font-render-hinting=none",
        "--force-color-profile=srgb",
        "--disable-smooth-scrolling",
    ]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # Chromium refuses to sandbox itself as root
    return arguments


def isolation_arguments() -> list[str]:
    """What closes the ways to the network that lead around a context's proxy: names and datagrams."""
    return [
        # Names are resolved by the proxy. A browser that asks for them itself tells the world what its pages contain.
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        "--dns-prefetch-disable",
        "--disable-quic",
        # The full browser knows the first, the headless shell the second.
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    ]


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
