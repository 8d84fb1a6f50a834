"""Puts a Chromium on this machine if there is none: `python -m holotron.env.browser.install`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from holotron.env.browser.chromium import find_chromium

# Debian has the browser itself; elsewhere the package is missing or a snap, which a service cannot start.
DEBIAN_PACKAGES = ("chromium-headless-shell", "libatomic1", "fonts-liberation", "fonts-dejavu-core")


def install() -> Path | None:
    """The browser there is now, or None if none could be put here."""
    found, _ = find_chromium()
    for commands in () if found else _ways():
        for command in commands:
            print(" ".join(command), file=sys.stderr, flush=True)
            if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
                break
        found, _ = find_chromium()
        if found:
            break
    return found


def _ways() -> list[list[list[str]]]:
    """What to try, the likeliest first."""
    playwright = [[sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]]
    if os.geteuid() == 0 and shutil.which("apt-get") and _is_debian():
        apt = [["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *DEBIAN_PACKAGES]]
        return [apt, playwright]
    return [playwright]


def _is_debian() -> bool:
    try:
        return "ID=debian" in Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False


if __name__ == "__main__":
    if install() is None:
        print("error: no Chromium could be put on this machine; `holotron doctor` says what to do", file=sys.stderr)
        sys.exit(1)
