"""The holotron command. A new subcommand is one file beside this one and one line at the end of it.

Command files import what is heavy (torch above all) inside their functions: every command starts through here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from holotron import __version__
from holotron.cli import (
    bench,
    cluster,
    cost,
    data,
    demo,
    doctor,
    evaluate,
    film,
    models,
    pipeline,
    plan,
    plan_train,
    rollout,
    run,
    serve,
    train,
    view,
)
from holotron.cli import process_registry as running
from holotron.cli.errors import DONE, FAILED, debugging, report
from holotron.cli.output import ListingGroup, examples, show_help


class CommandGroup(ListingGroup):
    """A group of commands whose failures are one line on stderr; HOLOTRON_DEBUG=1 lets the traceback through."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except typer.Abort:
            sys.exit(FAILED)
        except Exception as error:
            # What the user typed wrong is no riddle that a traceback would solve.
            if debugging() and not hasattr(error, "format_message"):
                raise
            sys.exit(report(error))
        sys.exit(code if isinstance(code, int) else DONE)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """A command's name may have two words."""
        pair = " ".join(args[:2])
        return super().resolve_command(ctx, [pair, *args[2:]] if pair in self.commands else args)


app = typer.Typer(
    cls=CommandGroup,
    help="Computer-use agents, throughput first.",
    epilog=examples("holotron doctor", "holotron plan holotron-12b --gpu H100 --sessions 100"),
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes leave help half of a narrow terminal, and cut words off
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holotron {__version__}")
        raise typer.Exit(DONE)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    show_help(context)


def main() -> None:
    """Entry point of the `holotron` script."""
    try:
        app(prog_name="holotron")
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(130)


app.command("models", epilog=models.EXAMPLES)(models.models)
app.command("plan", epilog=plan.EXAMPLES)(plan.plan)
app.command("plan train", epilog=plan_train.EXAMPLES)(plan_train.plan_train)
app.command("demo", epilog=demo.EXAMPLES)(demo.demo)
app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("rollout", epilog=rollout.EXAMPLES)(rollout.rollout)
app.add_typer(data.app, name="data")
app.command("view", epilog=view.EXAMPLES)(view.view)
app.command("film", epilog=film.EXAMPLES)(film.film)
app.command("cost", epilog=cost.EXAMPLES)(cost.cost)
app.command("stop", epilog=running.EXAMPLES)(running.stop)
app.add_typer(evaluate.app, name="eval")
app.add_typer(train.app, name="train")
app.add_typer(pipeline.app, name="pipeline")
app.command("serve", epilog=serve.EXAMPLES)(serve.serve)
app.command("up", epilog=cluster.UP_EXAMPLES)(cluster.up)
app.command("status", epilog=cluster.STATUS_EXAMPLES)(cluster.status)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("bench", epilog=bench.EXAMPLES, context_settings=bench.SETTINGS)(bench.bench)

if __name__ == "__main__":
    main()
