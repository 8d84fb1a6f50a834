"""Django's admin driven from the login to a deleted order, by a policy that is a script.

The script knows where things are from the page's elements, as a person knows from looking; everything it does goes
through the loop, the format and the browser of an agent.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holotron.agent.agent import Agent, Budget
from holotron.agent.chat import Message, Reply
from holotron.env.browser import dom_queries
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.launch import LaunchOptions
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.safety.policy import SafetyPolicy
from holotron.env.safety.secrets import Secret, Secrets
from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo, PolicyInfo
from holotron.episodes.recording import outcome_of, step_of
from holotron.episodes.store import EpisodeStore

SIZE = (1280, 800)
USER, PASSWORD = "ada", "correct horse & battery"
POINT = """selector => { const found = [...document.querySelectorAll(selector)].find(e => e.getClientRects().length);
  if (!found) return null; found.scrollIntoView({block: "center"}); const box = found.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2, box.right, box.bottom]; }"""


@dataclass(frozen=True)
class Do:
    """One action. at: a selector of what it is aimed at. drawn: or a text that an open list or calendar shows.

    right: at the right end of what the selector finds, where a date field has its icon.
    """

    action: str
    at: str = ""
    drawn: str = ""
    right: bool = False
    fields: Mapping[str, Any] | None = None


def write(at: str, text: str, **more: Any) -> Do:
    return Do("type", at, fields={"text": text, "clear": True, **more})


# Log in by secret, create a customer in a second tab, an order with a list and both kinds of calendar, edit it, agree
# to a dialog, and look at the list in another tab.
SCRIPT = [
    write("#id_username", USER),
    write("#id_password", "{{secret:password}}", enter=True),
    Do("click", "a[href='/admin/auth/order/add/']"),
    write("#id_title", "Ten chairs"),
    Do("click", "#id_status"),
    Do("click", drawn="Paid"),
    Do("click", "#add_id_customer"),  # opens a window, which becomes the current tab
    write("#id_name", "Grace"),
    Do("click", "input[name=_save]"),  # and closes it
    Do("click", ".field-due .date-icon"),
    Do("click", ".calendarbox .calendar td a"),
    Do("click", "#id_shipped", right=True),
    Do("click", drawn="15"),
    Do("click", "input[name=_continue]"),
    write("#id_title", "Twelve chairs"),
    Do("click", "#id_status"),
    Do("press", fields={"keys": "ArrowDown"}),
    Do("press", fields={"keys": "Enter"}),
    Do("click", "input[name=_continue]"),
    Do("click", "#archive"),
    Do("new_tab"),
    Do("goto", fields={"url": "ORIGIN/admin/auth/order/"}),
    Do("switch_tab", fields={"index": 0}),
    Do("answer", fields={"text": "done"}),
]


class Scripted:
    """The script as a model: asked for a step, it says the next one."""

    name = "script"

    def __init__(self, env: BrowserEnv, script: Sequence[Do], origin: str) -> None:
        self._env, self._script, self._origin = env, iter(script), origin
        self.heard: list[str] = []

    async def open(self) -> Scripted:
        return self

    async def close(self) -> None: ...

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        self.heard += [message.text for message in new]
        step = next(self._script)
        action = {"action": step.action, **(step.fields or {})}
        if "url" in action:
            action["url"] = action["url"].replace("ORIGIN", self._origin)
        if step.at or step.drawn:
            x, y = await self._drawn(step.drawn) if step.drawn else await self._at(step)
            action |= {"x": round(1000 * x / SIZE[0]), "y": round(1000 * y / SIZE[1])}
        return Reply(json.dumps({"note": "", "thought": step.at or step.drawn, "action": action}))

    async def _at(self, step: Do) -> tuple[float, float]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            point = await self._env.evaluate(f"({POINT})({json.dumps(step.at)})")
            if point is not None:
                return (point[2] - 14 if step.right else point[0]), point[1]
            await asyncio.sleep(0.1)
        raise AssertionError(f"{step.at} is not there")

    async def _drawn(self, text: str) -> tuple[float, float]:
        tab = self._env._driver.tabs.current
        left, _, right, bottom = await self._env.evaluate(
            f"({POINT})('#' + document.activeElement.id)".replace('found.scrollIntoView({block: "center"});', "")
        )
        left = min(left, right)
        for y in range(int(bottom) - 300, SIZE[1], 7):
            for x in range(max(0, int(left) - 150), int(right) + 250, 12):
                if y > 0 and await dom_queries.label_at(tab, x, y) == text:
                    return x + 4, y + 4  # a point of 1000 is not quite a pixel
        raise AssertionError(f"{text} is not drawn")


@contextmanager
def served(python: Path, folder: Path) -> Iterator[str]:
    """Django at work, started by its own Python; its origin."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(python), str(Path(__file__).with_name("django_site.py")), str(folder), str(port), USER, PASSWORD]
    log = folder / "django.log"
    with log.open("w") as out, subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            _wait_for(f"http://127.0.0.1:{port}/state", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"Django did not start:\n{log.read_text()[-2000:]}")


async def drive(origin: str, folder: Path, launch: LaunchOptions, told: Callable[[str], None]) -> dict[str, Any]:
    """The whole script, recorded in a folder; what became of it."""
    secrets = Secrets({"password": Secret(PASSWORD, [origin])})
    options = EnvOptions(width=SIZE[0], height=SIZE[1], safety=SafetyPolicy([origin]), secrets=secrets)
    store = EpisodeStore(folder, redact=secrets.redact)
    task = Task(text="Enter the order of Grace.", url=f"{origin}/admin/")
    began = time.monotonic()
    async with Browsers(1, launch) as browsers, await BrowserEnv.open(browsers, options) as env:
        policy = Scripted(env, SCRIPT, origin)
        await env.reset(task)
        with store.begin(
            task, PolicyInfo(model="script"), EnvironmentInfo(name="browser"), episode_id="django"
        ) as writer:

            async def step(record: Any) -> None:
                told(f"{record.index + 1:2d} {record.reply.text} {record.error}")
                await asyncio.to_thread(writer.add_step, step_of(record), record.observation.image)

            agent = Agent(policy, env, budget=Budget(steps=len(SCRIPT) + 1), on_step=step)
            ending = await agent.run(task.text)
            writer.finish(outcome_of(ending))
    state = json.loads(urllib.request.urlopen(f"{origin}/state").read())
    kept = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return {
        "ending": ending.reason,
        "steps": len(agent.steps),
        "seconds": round(time.monotonic() - began, 1),
        "failed_steps": [record.index for record in agent.steps if record.error],
        "most_tabs": max(len(record.observation.tabs) for record in agent.steps),
        "dialogs": [dialog.message for record in agent.steps for dialog in record.observation.dialogs],
        "told_of_the_secret": any("{{secret:password}}" in text for text in policy.heard),
        "secret_in_prompts_or_episode": any(PASSWORD in text for text in policy.heard)
        or any(PASSWORD.encode() in data for data in kept),
        "state": state,
    }
