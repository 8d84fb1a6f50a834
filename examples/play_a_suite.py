"""Tasks of MiniWoB++ by a fleet of two, into an episode store (the extra `eval`)."""

import asyncio
import tempfile
from pathlib import Path

from pages import endpoint

import holotron
from holotron.agent.open_model import open_endpoint, resolve_format
from holotron.agent.policy_format import JsonFormat
from holotron.episodes.record import PolicyInfo
from holotron.suites.play import Play, play_tasks


async def main(folder: Path) -> None:
    server, suite = endpoint(), holotron.find_suite("miniwob")
    asked = (resolve_format("holotron-nano", server) or JsonFormat()).with_kinds(suite.kinds)
    chat = holotron.ChatOptions(keep_images=asked.keep_images)
    info = PolicyInfo(model=server or "holotron-nano", extra={"format": asked.spec})
    play = Play(suite, folder, info, asked, holotron.Budget(steps=3), "positive")
    tasks = [suite.task(name, 1_000_000_000) for name in ("click-test", "click-button")]
    async with open_endpoint(server, None, chat) if server else holotron.open_model("holotron-nano", chat) as policy:
        counters = await play_tasks(play, tasks, policy, sessions=2)
    print(f"{counters.succeeded} of {counters.finished} solved in {counters.steps} steps")


with tempfile.TemporaryDirectory() as name:
    asyncio.run(main(Path(name)))
