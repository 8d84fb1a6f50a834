"""`holotron eval compare`: runs on the same items, item by item."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holotron.cli.errors import Misuse, misuse
from holotron.cli.output import JsonOption, console, examples, plain_table, print_json

COMPARE_EXAMPLES = examples(
    "holotron eval compare runs/a runs/b",
    "holotron eval compare before.json after.json larger.json --out compare.html --json",
)


def compare(
    reports: Annotated[
        list[Path],
        typer.Argument(help="Reports (JSON) of runs, or their folders; the others are compared to the first."),
    ],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The page with tables and plots.")] = Path("compare.html"),
    common: Annotated[
        bool, typer.Option("--common", help="Leave out what not all runs have, instead of refusing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Which of several runs is better, and how sure that is: reports of any evaluation, on the same items."""
    from holotron.eval.compare import CompareError, read_report
    from holotron.eval.compare import compare as compared
    from holotron.eval.compare_page import HEADS, totals, write_comparison

    if len(reports) < 2:
        raise Misuse("one report cannot be compared; give two or more")
    with misuse(CompareError):
        found = compared([read_report(path) for path in reports], common=common)
    write_comparison(found, out)
    if json:
        print_json(found.to_dict())
        return
    heads, *rows = zip(HEADS, *totals(found), strict=True)  # a column for each run: so they fit a narrow terminal
    table = plain_table(*heads)
    for row in rows:
        table.add_row(*row)
    console().print(table)
    left_out = f"; {found.left_out} that not all runs have are left out" if found.left_out else ""
    console().print(f"{found.items} items{left_out}. By group, with plots: {out}", soft_wrap=True, markup=False)
