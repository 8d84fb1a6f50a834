"""`holotron cost`: what the episodes of a folder took: steps, tokens, time, and money by a table of prices."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from holotron.cli.film import opened_store
from holotron.cli.output import JsonOption, console, examples, plain_table, print_json
from holotron.cli.policies import PricesOption, price_table

EXAMPLES = examples("holotron cost runs/many", "holotron cost runs/many --prices prices.toml --json")


def cost(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of episodes.")],
    prices: PricesOption = None,
    json: JsonOption = False,
) -> None:
    """Count tokens and time by model. Prices are yours: a TOML file with a table for each model.

    Each table has input, cached and output, the price of a million tokens; a name may be a pattern (\\["holo*"]).
    """
    from holotron.agent.cost import TokenUsage, usage_of

    table, store = price_table(prices), opened_store(folder)
    spent: dict[str, TokenUsage] = {}
    episodes: dict[str, int] = {}
    for info in store.list_episodes():
        model = info.policy.model
        spent[model] = spent.get(model, TokenUsage()) + usage_of(store.steps(info.id, salvage=True))
        episodes[model] = episodes.get(model, 0) + 1
    rows: list[dict[str, Any]] = []
    for model, usage in sorted(spent.items()):
        price = None if table is None else table.find(model)
        money = None if price is None else round(usage.money(price), 6)
        rows.append({"model": model, "episodes": episodes[model], **asdict(usage), "cost": money})
    if json:
        print_json({"currency": table.currency if table else None, "models": rows})
        return
    out = plain_table("model", "episodes", "steps", "read", "cached", "written", "seconds", "cost")
    for row in rows:
        price_words = "–" if row["cost"] is None else f"{row['cost']:.4f} {table.currency if table else ''}"
        counts = [f"{row[key]:,}" for key in ("episodes", "steps", "prompt", "cached", "output")]
        out.add_row(row["model"], *counts, f"{row['seconds']:.1f}", price_words)
    console().print(out)
