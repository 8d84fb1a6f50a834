"""How commands print: tables for people, JSON for programs, sizes in binary units."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from holotron.cli.errors import MISUSED
from holotron.cli.terminal import visible

if TYPE_CHECKING:
    from holotron.agent.agent import StepRecord
    from holotron.agent.cost import PriceTable, TokenUsage

MIB, GIB = 2**20, 2**30
MOST_NOTICES = 3
MOST_COLUMNS = 80  # of --help
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


class ListingGroup(TyperGroup):
    """A group whose help says of each command all that its first paragraph says."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        about = {name: (command.help or "").split("\n\n")[0] for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join(text.split())) for name, text in about.items()])


def show_help(context: typer.Context) -> None:
    """The callback of a group of commands: without one of them its help is shown, and that is misuse."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(MISUSED)


def command_group(about: str, epilog: str | None = None) -> typer.Typer:
    """A command that has commands."""
    return typer.Typer(
        cls=ListingGroup,
        help=about,
        epilog=epilog,
        callback=show_help,
        invoke_without_command=True,
        rich_markup_mode=None,
    )


def console() -> Console:
    """Standard output. Rich leaves out colours by itself when that is a file or a pipe."""
    return Console(highlight=False)


def plain_table(*headings: str, gap: int = 2) -> Table:
    """A table without lines, its columns so many spaces apart."""
    return Table(*headings, box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))


def print_json(value: Any) -> None:
    """Plain JSON, never wrapped or coloured, because a program reads it."""
    typer.echo(visible(json.dumps(value, indent=2, ensure_ascii=False)))


def print_wrapped(text: str, *, bullet: str = "", style: str = "") -> None:
    """A paragraph at the width of the terminal; lines after the first hang under the text, not under the bullet."""
    out = console()
    # Not at hyphens: model names are full of them and are meant to be copied.
    lines = textwrap.fill(
        text, out.width, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_on_hyphens=False
    )
    out.print(Text(lines, style=style), soft_wrap=True)


def print_step(out: Console, step: StepRecord, redact: Callable[[str], str] = str) -> None:
    """A step of an agent, after what its screen did not show, in a few lines, each passed through `redact`."""
    from holotron.actions.describe import describe

    what = describe(step.action) if step.action is not None else f"no action: {step.error}"
    notices = step.observation.notices
    told = [*notices[:MOST_NOTICES], *([f"and {len(notices) - MOST_NOTICES} more"] * (len(notices) > MOST_NOTICES))]
    lines = [(f"             {notice}", "yellow") for notice in told]
    lines.append((f"{step.index + 1:3d}  {step.timings.total:5.1f} s  {what}", ""))
    if step.thought:
        lines.append((f"             {step.thought}", "dim"))
    if step.action is not None and step.error:
        lines.append((f"             {step.error}", "yellow"))
    for line, style in lines:
        out.print(visible(redact(line)), style=style, markup=False)


def told_usage(usage: TokenUsage, model: str, prices: PriceTable | None = None) -> str:
    """Steps, seconds and tokens in a line, and what they cost where there is a price."""
    words = f"{usage.steps} steps, {usage.seconds:.1f} s"
    if usage.prompt or usage.output:
        words += f", {usage.prompt:,} tokens read ({usage.cached:,} of them before), {usage.output:,} written"
    if prices is None:
        return words
    price = prices.find(model)
    return f"{words}, {'no price for ' + model if price is None else f'{usage.money(price):.4f} {prices.currency}'}"


def examples(*commands: str) -> str:
    """An epilog for --help: commands that can be copied, at the width of the terminal, comments above them."""
    width = min(shutil.get_terminal_size().columns, MOST_COLUMNS) - 6  # the margin, and what goes on
    lines = ["Example:" if len(commands) == 1 else "Examples:"]
    for command in commands:
        typed, *comment = re.split(r"\s+# ", command, maxsplit=1)
        words = re.findall(r'(?:"[^"]*"|\S)+', typed)
        rows = [words.pop(0)]
        for word in words:
            fits = len(rows[-1]) + 1 + len(word) <= width
            rows[-1:] = [f"{rows[-1]} {word}"] if fits else [rows[-1] + " \\", "  " + word]
        lines.append(
            "\n".join(
                ["\b", *textwrap.wrap("".join(comment), width, initial_indent="# ", subsequent_indent="# "), *rows]
            )
        )
    return "\n\n".join(lines)


def size(count: float) -> str:
    """Bytes in GiB, or in MiB where that would be mostly zeros."""
    if 0 < count < GIB / 10:
        return f"{count / MIB:,.1f} MiB"
    return f"{count / GIB:,.1f} GiB" if count >= 10 * GIB else f"{count / GIB:,.2f} GiB"


def billions(count: float) -> str:
    """Parameters, in the unit that model names use."""
    return f"{count / 1e9:,.2f} B" if count >= 1e9 else f"{count / 1e6:,.1f} M"


def rate(value: float) -> str:
    return f"{value:,.1f}" if value >= 1 else f"{value:,.2f}"


def milliseconds(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:,.0f} ms" if value >= 100 else f"{value:,.1f} ms"
