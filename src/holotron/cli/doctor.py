"""`holotron doctor`: what this machine has, what it lacks, and the command that fixes each lack."""

from __future__ import annotations

from dataclasses import asdict

import typer

from holotron import __version__
from holotron.cli.checks import Check, run_checks
from holotron.cli.errors import FAILED
from holotron.cli.output import JsonOption, console, examples, plain_table, print_json, print_wrapped

EXAMPLES = examples("holotron doctor", "holotron doctor --json")
_STYLES = {"ok": "green", "note": "yellow", "missing": "red"}


def doctor(json: JsonOption = False) -> None:
    """Check this machine and say how to fix what is missing.

    Leaves with 1 if something that everything needs is missing, with 0 otherwise.
    """
    checks = run_checks()
    healthy = not any(check.failed for check in checks)
    if json:
        print_json({"holotron": __version__, "ok": healthy, "checks": [asdict(check) for check in checks]})
    else:
        _print_report(checks, healthy)
    if not healthy:
        raise typer.Exit(FAILED)


def _print_report(checks: list[Check], healthy: bool) -> None:
    table = plain_table()
    table.add_column("check", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("found", overflow="fold")
    for check in checks:
        # Red is for what stops the work.
        style = "yellow" if check.state == "missing" and not check.required else _STYLES[check.state]
        table.add_row(check.name, f"[{style}]{check.state}[/]", check.detail)
    out = console()
    out.print(table)
    fixes = [check for check in checks if check.fix and check.state != "ok"]
    if fixes:
        out.print("\nTo fix", style="bold")
    for check in fixes:
        need = "required" if check.required else "optional"
        print_wrapped(f"{check.name} ({need}: {check.needed_for})", bullet="  ")
        # Printed as it is, however long: a command that was broken over two lines cannot be copied.
        typer.echo(f"    {check.fix}")
    out.print()
    if not healthy:
        print_wrapped("Something that everything needs is missing.", style="red")
    elif fixes:
        print_wrapped("Holotron runs here. What is optional is listed above.", style="green")
    else:
        print_wrapped("Everything is here.", style="green")
