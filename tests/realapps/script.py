"""A policy that is a script.

It knows where things are from the page's elements, as a person knows from looking; everything it does goes through the
loop, the format and the browser of an agent.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holotron.agent.agent import Agent, Budget
from holotron.agent.chat import Message, Reply
from holotron.agent.policy_format import JsonFormat
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
from tests.agent.replies import SingleChat
from tests.realapps.application import Application, Do

SIZE = (1280, 800)
SECONDS = 60.0  # in which an element must be there
# Only what the screenshot shows: what lies below it must be scrolled to by an action.
FIND = """selector => [...document.querySelectorAll(selector)].find(e => { const box = e.getBoundingClientRect();
  return box.width && box.height && box.top >= 0 && box.bottom <= innerHeight; })"""
POINT = f"""selector => {{ const found = ({FIND})(selector); if (!found) return null;
  const box = found.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2, box.right, box.bottom]; }}"""
TEXT = f"selector => {{ const found = ({FIND})(selector); return found ? found.innerText.trim() : null; }}"


class Scripted(SingleChat):
    """The script as a model: asked for a step, it says the next one."""

    name = "script"

    def __init__(self, env: BrowserEnv, script: Sequence[Do], origin: str) -> None:
        self._env, self._script, self._origin = env, iter(script), origin
        self.heard: list[str] = []

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        self.heard += [message.text for message in new]
        step = next(self._script)
        action = {"action": step.action, **(step.fields or {})}
        if "url" in action:
            action["url"] = action["url"].replace("ORIGIN", self._origin)
        if step.read:
            action["text"] = await self._wait_for(TEXT, step.read)
        if step.at or step.drawn:
            x, y = await self._drawn(step.drawn) if step.drawn else await self._at(step)
            action |= {"x": round(1000 * x / SIZE[0]), "y": round(1000 * y / SIZE[1])}
        return Reply(json.dumps({"note": "", "thought": step.at or step.drawn, "action": action}))

    async def _wait_for(self, question: str, selector: str) -> Any:
        """What the page says about the first element that is shown, as soon as there is one."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            found = await self._env.evaluate(f"({question})({json.dumps(selector)})")
            if found is not None:
                return found
            await asyncio.sleep(0.1)
        raise AssertionError(f"{selector} is not in view")

    async def _at(self, step: Do) -> tuple[float, float]:
        point = await self._wait_for(POINT, step.at)
        return (point[2] - 14 if step.right else point[0]), point[1]

    async def _drawn(self, text: str) -> tuple[float, float]:
        tab = self._env._driver.tabs.current
        left, _, right, bottom = await self._env.evaluate(f"({POINT})('#' + document.activeElement.id)")
        left = min(left, right)
        for x in range(max(0, int(left) - 150), int(right) + 250, 12):  # rows of a list are as wide as their field
            for y in range(max(1, int(bottom) - 300), SIZE[1], 7):
                if await dom_queries.label_at(tab, x, y) == text:
                    return x + 4, y + 4  # a point of 1000 is not quite a pixel
        raise AssertionError(f"{text} is not drawn")


async def play(
    application: Application, origin: str, folder: Path, launch: LaunchOptions, told: Callable[[str], None]
) -> list[str]:
    """The whole script, recorded in a folder; what the policy was told."""
    name, value = application.secret
    secrets = Secrets({name: Secret(value, [origin])})
    options = EnvOptions(width=SIZE[0], height=SIZE[1], safety=SafetyPolicy([origin]), secrets=secrets)
    store = EpisodeStore(folder, redact=secrets.redact)
    task = Task(text=application.task, url=origin + application.start)
    async with Browsers(1, launch) as browsers, await BrowserEnv.open(browsers, options) as env:
        policy = Scripted(env, application.script, origin)
        await env.reset(task)
        info = PolicyInfo(model="script", extra={"format": JsonFormat().spec})
        with store.begin(task, info, EnvironmentInfo(name="browser"), episode_id="script") as writer:

            async def step(record: Any) -> None:
                told(f"{record.index + 1:2d} {record.reply.text} {record.error}")
                await asyncio.to_thread(writer.add_step, step_of(record), record.observation.image)

            agent = Agent(policy, env, budget=Budget(steps=len(application.script) + 1), on_step=step)
            ending = await agent.run(task.text)
            done = ending.reason == "answered"
            writer.finish(outcome_of(ending).model_copy(update={"success": done, "reward": float(done)}))
    return policy.heard
