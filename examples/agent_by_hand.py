"""Agent, browser and model by hand: several tasks in one browser, with budgets of your own."""

import asyncio

from pages import endpoint, site

import holotron
from holotron.agent.open_model import open_endpoint, resolve_format
from holotron.agent.policy_format import JsonFormat


async def main() -> None:
    server = endpoint()
    asked = resolve_format("holotron-nano", server) or JsonFormat()
    chat = holotron.ChatOptions(keep_images=asked.keep_images)
    opened = open_endpoint(server, None, chat) if server else holotron.open_model("holotron-nano", chat)
    width, height = asked.size or (1280, 800)
    with site() as address:
        options = holotron.EnvOptions(width=width, height=height, safety=holotron.SafetyPolicy([address]))
        async with (
            opened as policy,
            holotron.Browsers() as browsers,
            await holotron.BrowserEnv.open(browsers, options) as env,
        ):
            budget = holotron.Budget(steps=4, seconds=120)
            agent = holotron.Agent(policy, env, policy_format=asked, budget=budget, stuck=holotron.StuckLimits())
            for path in ("/", "/login"):
                await env.goto(address + path)
                ending = await agent.run("What is this page about?")
                print(path, ending.reason, ending.answer, ending.detail)


asyncio.run(main())
