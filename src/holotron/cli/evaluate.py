"""`holotron eval`: how good a policy is, by protocols that have names."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from holotron.cli.errors import Misuse, misuse
from holotron.cli.output import console, examples, print_json
from holotron.cli.policies import (
    Chosen,
    EndpointOption,
    MaxTokensOption,
    ModelOption,
    NameOption,
    RandomOption,
    TemperatureOption,
    agent_failures,
    opened,
)
from holotron.cli.progress import fleet_progress, step_progress
from holotron.cli.running import registered

app = typer.Typer(help="Evaluate a policy.", no_args_is_help=True, rich_markup_mode="rich")
MINIWOB_EXAMPLES = examples(
    "holotron eval miniwob --endpoint http://127.0.0.1:8000/v1 --protocol browsergym-125 --sessions 16",
    "holotron eval miniwob --baseline random --tasks click-test,click-button --seeds 1,2,3",
    "holotron eval miniwob --baseline scripted --tasks login-user,enter-text --json",
)


@app.command("miniwob", epilog=MINIWOB_EXAMPLES)
def miniwob(
    protocol: Annotated[
        str, typer.Option(help="browsergym-125, strict-125, pix2act-58 or webgum-56")
    ] = "browsergym-125",
    model: ModelOption = None,
    random: RandomOption = False,
    endpoint: EndpointOption = None,
    name: NameOption = None,
    baseline: Annotated[str | None, typer.Option(help="random or scripted, instead of a model")] = None,
    tasks: Annotated[str | None, typer.Option(help="Some of the protocol's tasks, with commas between.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Other seeds than the protocol's, with commas between.")] = None,
    sessions: Annotated[int, typer.Option(min=1, max=512, help="Pages that play at once.")] = 8,
    browsers: Annotated[int, typer.Option(min=1, max=64, help="Chromium processes.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; a second one goes on in it.")] = None,
    temperature: TemperatureOption = 0.0,
    max_tokens: MaxTokensOption = 256,
    bare: Annotated[bool, typer.Option("--bare", help="Ask for the action alone, without note and thought.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """MiniWoB++: 125 small web tasks, pixels only."""
    from holotron.agent.baselines import RandomModel
    from holotron.agent.chat import Style
    from holotron.agent.prompts import WIDGET_KINDS, NavigationForm
    from holotron.env.miniwob.errors import MiniWoBError
    from holotron.eval.html_report import write_html
    from holotron.eval.miniwob import EvalError, MiniWoBRun, choose, evaluate

    with misuse(MiniWoBError, EvalError):
        chosen_protocol = choose(protocol, _listed(tasks))
    numbers = _numbers(seeds)
    if baseline not in (None, "random", "scripted"):
        raise Misuse(f"--baseline is {baseline!r}; choose random or scripted")
    chosen = None if baseline else Chosen(model, random, endpoint, name)
    label = baseline or (chosen.label if chosen else "")
    folder = out or Path("runs") / f"miniwob-{protocol}-{_slug(label)}"

    async def main() -> dict[str, Any]:
        def run(acting: Any) -> MiniWoBRun:
            form = chosen.form(bare, WIDGET_KINDS) if chosen else NavigationForm(WIDGET_KINDS, reasons=not bare)
            return MiniWoBRun(chosen_protocol, folder, acting, label, numbers, sessions, browsers, form)

        with fleet_progress(f"{protocol}, {label}") as update:
            if chosen is None:
                return await evaluate(run(RandomModel() if baseline == "random" else None), update)
            async with opened(chosen, Style(max_tokens=max_tokens, temperature=temperature)) as acting:
                return await evaluate(run(acting), update)

    with registered("eval"), agent_failures(), misuse(EvalError):
        report = asyncio.run(main())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    write_html(report, folder / "report.html")
    if as_json:
        print_json(report)
    else:
        _print(report, folder)


RECALL_EXAMPLES = examples(
    "holotron eval recall --endpoint http://127.0.0.1:8000/v1 --trials 8 --out runs/recall",
    "holotron eval recall --model ./checkpoint --asked-at 5,20 --trials 2 --keep-images 3 --json",
)


@app.command("recall", epilog=RECALL_EXAMPLES)
def recall(
    model: ModelOption = None,
    random: RandomOption = False,
    endpoint: EndpointOption = None,
    name: NameOption = None,
    asked_at: Annotated[str, typer.Option(help="Steps at which the code of step 3 is asked for.")] = "5,10,20,30,40,50",
    trials: Annotated[int, typer.Option(min=1, max=1000, help="Walks for each of them and each condition.")] = 8,
    seed: Annotated[int, typer.Option(help="Of the pages.")] = 0,
    sessions: Annotated[int, typer.Option(min=1, max=256, help="Walks at once.")] = 4,
    keep_images: Annotated[
        int | None, typer.Option(min=1, help="Screenshots kept in view; without it all: then attention remembers, too")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; a second one goes on in it.")] = None,
    max_tokens: MaxTokensOption = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """What a policy remembers: a code shown at step 3 of a walk over rendered pages, asked for many steps later."""
    from holotron.agent.chat import Style
    from holotron.env.browsers import Browsers
    from holotron.eval.recall import run_recall

    chosen = Chosen(model, random, endpoint, name)
    try:
        distances = tuple(int(part) for part in _listed(asked_at))
    except ValueError:
        raise Misuse(f"--asked-at is {asked_at!r}; it must be whole numbers with commas between") from None

    async def main() -> Any:
        style = Style(max_tokens=max_tokens, keep_images=keep_images, record_tokens=False)
        async with opened(chosen, style) as acting, Browsers() as browsers:
            with step_progress("recall") as update:
                return await run_recall(
                    acting,
                    browsers,
                    distances=distances,
                    trials=trials,
                    seed=seed,
                    sessions=sessions,
                    folder=out,
                    progress=update,
                )

    with registered("eval"), agent_failures():
        report = asyncio.run(main())
    if as_json:
        print_json(report.to_dict())
    else:
        typer.echo(report.table())


def _print(report: dict[str, Any], folder: Path) -> None:
    table = Table("task", "solved", "rate", "95%", "mean reward", box=None)
    for row in report["tasks"]:
        low, high = row["interval"]
        rate = "–" if row["success_rate"] is None else f"{100 * row['success_rate']:.0f}%"
        reward = "–" if row["mean_reward"] is None else f"{row['mean_reward']:.2f}"
        solved = f"{row['successes']} of {row['episodes']}"
        table.add_row(row["task"], solved, rate, f"{100 * low:.0f}–{100 * high:.0f}%", reward)
    console().print(table)
    rate = report["success_rate"]
    low, high = report["interval"]
    console().print(
        f"{report['protocol']}, {report['policy']}: "
        f"{'nothing played' if rate is None else f'{100 * rate:.1f}%'} ({100 * low:.1f} to {100 * high:.1f}) of "
        f"{report['episodes']} episodes; {report['missing']} missing. Report: {folder / 'report.html'}"
    )


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _numbers(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in _listed(text))
    except ValueError:
        raise Misuse(f"--seeds is {text!r}; it must be whole numbers with commas between") from None


def _slug(text: str) -> str:
    return (
        "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in text)[-60:].strip("-.") or "model"
    )
