"""`holotron run`: one task, in a real browser, while you watch."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from holotron.cli import policies
from holotron.cli.errors import FAILED, failure, misuse
from holotron.cli.output import examples, print_step
from holotron.cli.policies import Chosen, agent_failures, opened
from holotron.cli.process_registry import registered
from holotron.cli.terminal import visible

if TYPE_CHECKING:
    from holotron.agent.agent import Ending, StepRecord

EXAMPLES = examples(
    'holotron run "log in as ada with password x" --url http://localhost:3000 --headed',
    'holotron run "find the opening hours" --url https://example.com --endpoint http://127.0.0.1:8000/v1',
    'holotron run "log in as ada" --url http://localhost:3000 --model ./checkpoint --secret password=@pw.txt --headed',
)


def run(
    task: Annotated[str, typer.Argument(help="What is to be done.")],
    url: Annotated[str, typer.Option(help="The page to start on.")],
    model: policies.ModelOption = None,
    random: policies.RandomOption = False,
    endpoint: policies.EndpointOption = None,
    name: policies.NameOption = None,
    steps: Annotated[int, typer.Option(min=1, max=1000, help="Most steps.")] = 30,
    seconds: Annotated[float, typer.Option(min=1, help="Most seconds.")] = 600.0,
    temperature: policies.TemperatureOption = 0.0,
    max_tokens: policies.MaxTokensOption = 512,
    size: Annotated[
        str | None,
        typer.Option(help="WIDTHxHEIGHT of the browser's view; default 1280x800, or what the model is best at"),
    ] = None,
    headed: Annotated[bool, typer.Option("--headed", help="Show the browser.")] = False,
    record: Annotated[Path | None, typer.Option(help="Keep the episode in this folder (see holotron view).")] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="Origins it may visit (https://*.example.com); default: that of --url")
    ] = None,
    anywhere: Annotated[bool, typer.Option("--anywhere", help="Any public site, not only that of --url.")] = False,
    allow_private: policies.AllowPrivateOption = None,
    secret: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE or NAME=@FILE, typed as {{secret:NAME}}, never shown to it")
    ] = None,
    ask: Annotated[
        list[str] | None, typer.Option(help="Ask before actions that match this pattern, such as 'buy|pay|delete'.")
    ] = None,
    bare: policies.BareOption = False,
    format_: policies.FormatOption = None,
) -> None:
    """Do one task in a browser. Ctrl-C, or `holotron stop` elsewhere, ends it."""
    from holotron.model.errors import ModelError
    from holotron.plan.errors import PlanError
    from holotron.plan.workload import parse_size

    chosen = Chosen(model, random, endpoint, name, format_)
    with failure(ModelError):
        policy_format = chosen.policy_format(bare)
    with misuse(PlanError):
        parsed = parse_size("--size", size, 100, 8000) if size else None
    width, height = parsed or policy_format.size or (1280, 800)
    out = Console(stderr=True, highlight=False)
    if introduction := chosen.introduction():
        out.print(introduction, style="dim")

    async def main() -> Ending:
        from holotron.agent.agent import Agent, Budget
        from holotron.cli.episodes import environment_options, recorded
        from holotron.env.browser.environment import BrowserEnv
        from holotron.env.browser.launch import LaunchOptions
        from holotron.env.browser.pool import Browsers
        from holotron.episodes.recording import outcome_of, step_of

        style = policy_format.options(max_tokens, temperature)
        address, options = environment_options(url, width, height, allow, anywhere, secret, ask, private=allow_private)
        async with (
            opened(chosen, style) as acting,
            Browsers(options=LaunchOptions(headless=not headed)) as browsers,
            await BrowserEnv.open(browsers, options) as env,
        ):
            with recorded(record, task, address, chosen.info(policy_format), options) as writer:
                began = time.monotonic()

                async def told(step: StepRecord) -> None:
                    print_step(out, step, options.secrets.redact)
                    if writer is not None:
                        await asyncio.to_thread(writer.add_step, step_of(step), step.observation.image)

                await env.goto(address)
                budget = Budget(steps=steps, seconds=seconds)
                agent = Agent(acting, env, policy_format=policy_format, budget=budget, on_step=told)
                ending = await agent.run(options.secrets.redact(task))
                if writer is not None:
                    writer.finish(outcome_of(ending))
            out.print(f"{ending.reason} after {len(agent.steps)} steps, {time.monotonic() - began:.1f} s")
            return replace(ending, answer=options.secrets.redact(ending.answer))

    with registered("run"), agent_failures():
        ending = asyncio.run(main())
    if ending.answer:
        typer.echo(visible(ending.answer))
    if record is not None:
        out.print(f"recorded; look at it with: holotron view {record}")
    if ending.reason not in ("answered", "done"):
        raise typer.Exit(FAILED)
