"""`make test-realapps`: real applications, installed and started here, driven end to end by a scripted policy."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from holotron.env.browser.launch import LaunchOptions
from tests.realapps.django_admin import drive, served

BROWSERS = {"headless shell": "chromium-headless-shell", "full": "chromium"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.realapps", description=__doc__)
    parser.add_argument("--python", type=Path, required=True, help="a Python that has Django")
    parser.add_argument("--out", type=Path, help="where the report goes; without it, to standard output")
    arguments = parser.parse_args()
    version = subprocess.run(
        [arguments.python, "-m", "django", "--version"], capture_output=True, text=True, check=True
    )
    runs = {}
    for name, command in BROWSERS.items():
        if executable := shutil.which(command):
            runs[name] = _run(arguments.python, executable)
    report = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": "make test-realapps",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "application": f"Django {version.stdout.strip()}, its admin",
        "browsers": runs,
    }
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")
    else:
        print(text)
    sys.exit(not all(run["problems"] == [] for run in runs.values()))


def _run(python: Path, executable: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, served(python, Path(name)) as origin:
        launch = LaunchOptions(executable=executable)
        done = asyncio.run(drive(origin, Path(name) / "episodes", launch, lambda line: print(line, file=sys.stderr)))
    return done | {"problems": problems(done)}


def problems(done: dict[str, Any]) -> list[str]:
    """What is not as it should be at the end."""
    month = date.today().replace(day=1).isoformat()[:8]
    (order, *others) = done["state"]["orders"] or [{}]
    wanted = {
        "title": "Twelve chairs",
        "status": "shipped",
        "customer__name": "Grace",
        "due": f"{month}01",
        "shipped": f"{month}15",
        "archived": True,
    }
    found = [f"{key} is {order.get(key)!r}, not {value!r}" for key, value in wanted.items() if order.get(key) != value]
    if others:
        found.append(f"there are {len(others)} other orders")
    checks = {
        "an action failed": not done["failed_steps"],
        "there was no second tab": done["most_tabs"] >= 2,
        "the dialog was not told": done["dialogs"] == ["Archive this order?"],
        "the policy was not told of the secret": done["told_of_the_secret"],
        "the secret is in a prompt or the episode": not done["secret_in_prompts_or_episode"],
        "it did not end with an answer": done["ending"] == "answered",
    }
    return found + [what for what, fine in checks.items() if not fine]


if __name__ == "__main__":
    main()
