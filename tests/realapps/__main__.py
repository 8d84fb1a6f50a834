"""`make test-realapps`: real applications, installed and started here, driven end to end.

By a scripted policy in every Chromium; then by a model that learned that run by heart, in one process and through
`holotron serve`.
"""

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
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holotron.env.browser.launch import LaunchOptions
from holotron.episodes.store import EpisodeStore
from tests.realapps import learned
from tests.realapps.application import Application, free_port, served
from tests.realapps.django_admin import DJANGO
from tests.realapps.jupyter_lab import JUPYTER
from tests.realapps.script import play

APPLICATIONS = {"django": DJANGO, "jupyterlab": JUPYTER}
BROWSERS = {"headless shell": "chromium-headless-shell", "full": "chromium"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.realapps", description=__doc__)
    parser.add_argument("--python", type=Path, required=True, help="a Python that has the applications")
    parser.add_argument("--only", choices=APPLICATIONS, help="one of them; default all")
    parser.add_argument("--browser", choices=BROWSERS, help="one of them; default all that are here")
    parser.add_argument("--out", type=Path, help="where the report goes; without it, to standard output")
    arguments = parser.parse_args()
    wanted = {name: command for name, command in BROWSERS.items() if arguments.browser in (None, name)}
    browsers = {name: path for name, command in wanted.items() if (path := shutil.which(command))}
    done = {}
    for name in [arguments.only] if arguments.only else APPLICATIONS:
        done[name] = _drive(APPLICATIONS[name], arguments.python, browsers)
        report = {
            "date": datetime.now(UTC).date().isoformat(),
            "command": "make test-realapps",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "applications": done,
        }
        text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
        if arguments.out:
            arguments.out.write_text(text, encoding="utf-8")
        else:
            print(text)
    sys.exit(any(run["problems"] for one in done.values() for run in one["runs"]))


def _drive(application: Application, python: Path, browsers: dict[str, str]) -> dict[str, Any]:
    code = f"import importlib.metadata as found; print(found.version('{application.package}'))"
    version = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    port, runs = free_port(), []  # one port: the script says addresses, and so does what is learned from it
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)

        def one(label: dict[str, str], act: Callable[[Path, str], list[str]]) -> dict[str, Any]:
            """A fresh application, driven by `act`, which records in a folder; what it returns is what was told."""
            print(*label.values(), file=sys.stderr)
            folder = root / f"{len(runs)}"
            with served(application, python, folder / "application", port) as origin:
                began = time.monotonic()
                heard = act(folder, origin)
                seconds = round(time.monotonic() - began, 1)
                state = application.state(folder / "application", origin)
            runs.append(label | {"seconds": seconds} | _checked(application, folder / "episodes", heard, state))
            return runs[-1]

        for browser, executable in browsers.items():

            def script(folder: Path, origin: str, executable: str = executable) -> list[str]:
                options = LaunchOptions(executable=executable)
                return asyncio.run(play(application, origin, folder / "episodes", options, _tell))

            one({"policy": "script", "browser": browser}, script)
        if runs and not runs[0]["problems"]:
            label, executable = next(iter(browsers.items()))
            weights = learned.learn(root / "0", application)
            policy = "model that learned the script's run by heart"

            def local(folder: Path, origin: str) -> list[str]:
                return [learned.run(folder, application, origin, executable, "--model", str(weights))]

            def remote(folder: Path, origin: str) -> list[str]:
                with learned.serving(folder, weights) as endpoint:
                    said = learned.run(folder, application, origin, executable, "--endpoint", endpoint)
                return [said, (folder / "serve.log").read_text()]

            for way, act in {"holotron run --model": local, "holotron serve, holotron run --endpoint": remote}.items():
                run = one({"policy": policy, "command": way, "browser": label}, act)
                if run["actions"] != runs[0]["actions"]:
                    run["problems"].append("its actions are not those of the script")
    for run in runs:
        del run["actions"]
    return {"version": version, "runs": runs}


def _checked(application: Application, store: Path, heard: list[str], state: Any) -> dict[str, Any]:
    """What an episode and the application's state show. heard: what the policy, or the user, was told in words."""
    (info,) = EpisodeStore(store).list_episodes()
    episode = EpisodeStore(store).read(info.id)
    seen = [step.observation for step in episode.steps]
    notices = [notice for observation in seen for notice in observation.notices]
    name, value = application.secret
    kept = [path.read_bytes() for path in store.rglob("*") if path.is_file()]
    failed = [step.index for step in episode.steps if step.result.error]
    most_tabs = max(len(observation.tabs) for observation in seen)
    ending = info.outcome.reason if info.outcome else "none"
    checks = {
        f"its state is {state!r}, not {application.wanted()!r}": state == application.wanted(),
        "an action failed": not failed,
        "there was no second tab": most_tabs >= 2,
        "a dialog was not told": all(any(words in notice for notice in notices) for words in application.told),
        "the policy was not told of the secret": any(f"{{{{secret:{name}}}}}" in notice for notice in notices),
        "the secret is in a prompt, the episode or the output": not any(value in text for text in heard)
        and not any(value.encode() in data for data in kept),
        "it did not end with an answer": ending == "answered",
    }
    return {
        "ending": ending,
        "answer": info.outcome.detail if info.outcome else "",
        "steps": len(seen),
        "failed_steps": failed,
        "most_tabs": most_tabs,
        "state": state,
        "problems": [what for what, fine in checks.items() if not fine],
        "actions": [step.action.text if step.action else "" for step in episode.steps],
    }


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
