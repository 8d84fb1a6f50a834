"""`holotron bench`: hands its words to the benchmarks' own parser, which also runs where this command line cannot."""

from __future__ import annotations

import typer

from holotron.cli.output import examples

EXAMPLES = examples(
    "holotron bench agent --model holotron-12b --random --sessions 100",
    "holotron bench phases --model qwen3-8b --random",
    "holotron bench suite --cases text-100,screens-100",
    "holotron bench train --preset holotron-12b --lora 16 --tokens 32768",
)
SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def bench(context: typer.Context) -> None:
    """Measure the engine: the agent workload, phases, kernels. `holotron bench agent --help` has the knobs."""
    from holotron.bench.__main__ import main

    words = context.args or ["--help"]
    raise typer.Exit(main(words))
