"""`holotron run`: one task, in a real browser, while you watch."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from holotron.cli import policies
from holotron.cli.errors import FAILED, Misuse, failure, misuse
from holotron.cli.output import examples, print_step, told_usage
from holotron.cli.policies import Chosen, agent_failures, opened
from holotron.cli.process_registry import registered
from holotron.cli.terminal import visible
from holotron.env.browser.chromium import require_chromium

if TYPE_CHECKING:
    from holotron.env.safety.confirm import Question
    from holotron.episodes.run import RunResult

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
    record: Annotated[
        Path | None, typer.Option(file_okay=False, help="Keep the episode in this folder (see holotron view).")
    ] = None,
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
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Do not end when it goes round in circles.")] = False,
    prices: policies.PricesOption = None,
    bare: policies.BareOption = False,
    format_: policies.FormatOption = None,
) -> None:
    """Do one task in a browser. Ctrl-C, or `holotron stop` elsewhere, ends it."""
    from holotron.model.errors import ModelError
    from holotron.plan.errors import PlanError
    from holotron.plan.workload import parse_size

    if not task.strip():
        raise Misuse("TASK is empty; say what is to be done")
    chosen = Chosen(model, random, endpoint, name, format_)
    with misuse(PlanError):
        parsed = parse_size("--size", size, 100, 8000) if size else None
    table = policies.price_table(prices)
    with agent_failures(), failure(ModelError):
        require_chromium(window=headed)
        policy_format = chosen.policy_format(bare)
    from holotron.episodes.run import SIZE, browser_options

    with misuse(ValueError):
        address, options = browser_options(
            url,
            parsed or policy_format.size or SIZE,
            allow=allow or (),
            anywhere=anywhere,
            allow_private=allow_private or (),
            secrets=_read_secrets(secret or ()),
            ask=ask or (),
            on_question=_ask,
        )
    out = Console(stderr=True, highlight=False)
    if introduction := chosen.introduction():
        out.print(introduction, style="dim")
    if secret and chosen.local == policies.BUNDLED:
        out.print(f"{policies.BUNDLED} does not write {{{{secret:NAME}}}}: a larger policy is needed", markup=False)

    async def main() -> RunResult[Any]:
        from holotron.agent.agent import Budget
        from holotron.agent.stuck import StuckLimits
        from holotron.episodes.run import OneRun

        async with opened(chosen, policy_format.options(max_tokens, temperature)) as policy:
            one = OneRun(
                policy,
                policy_format,
                chosen.info(policy_format, table),
                options,
                Budget(steps=steps, seconds=seconds),
                None if keep_going else StuckLimits(),
                headed,
            )
            on_step = partial(print_step, out, redact=options.secrets.redact)
            return await one.play(task, address, record, on_step=on_step)

    with registered("run"), agent_failures():
        result = asyncio.run(main())
    out.print(f"{result.reason} after {told_usage(result.usage, chosen.label, table)}")
    if result.detail:
        out.print(f"  {visible(result.detail)}", markup=False)
    if result.answer:
        typer.echo(visible(result.answer))
    if record is not None:
        out.print(f"recorded; look at it with: holotron view {record}")
    if not result.success:
        raise typer.Exit(FAILED)


def _read_secrets(given: Sequence[str]) -> dict[str, str]:
    """Values by name."""
    known = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Misuse("--secret is NAME=VALUE or NAME=@FILE")
        try:
            known[name] = Path(value[1:]).read_text("utf-8").strip() if value[:1] == "@" else value
        except (OSError, UnicodeDecodeError) as error:
            raise Misuse(f"the secret {name} cannot be read from {value[1:]}: {error}") from error
    return known


async def _ask(question: Question) -> bool:
    return await asyncio.to_thread(_agree, f"{question.action}: {question.text or question.url} — go on?")


def _agree(words: str) -> bool:
    """Ask until the answer is yes or no; the end of input is a no."""
    while True:
        print(f"{visible(words)} [y/N] ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print("no: there is nobody to ask, the input has ended", file=sys.stderr)
        if line.strip().lower() in ("", "n", "no"):
            return False
        if line.strip().lower() in ("y", "yes"):
            return True
