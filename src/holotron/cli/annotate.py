"""`holotron data annotate`: labels for screenshots, videos, episodes and pages."""

from __future__ import annotations

import asyncio
import json as json_text
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from holotron.cli import policies
from holotron.cli.errors import Misuse, choose, listed, misuse
from holotron.cli.eval_navigation import JUDGES, judge_at
from holotron.cli.output import JsonOption, console, examples, plain_table, print_json
from holotron.cli.policies import Chosen, agent_failures, opened, price_table
from holotron.cli.process_registry import registered
from holotron.cli.progress import passing_progress

KINDS = ("elements", "instructions", "captions", "thoughts", "verdicts", "hindsight")
EXAMPLES = examples(
    "holotron data annotate https://example.com addresses.txt --out labels/pages   # the DOM's word; no model",
    "holotron data annotate screenshots/ demo.mp4 --out labels/screens --endpoint http://127.0.0.1:8000/v1"
    " --judge https://api.openai.com/v1 --judge-name gpt-4o --votes 3",
    "holotron data annotate runs/today --out labels/today --labels thoughts,verdicts,hindsight --endpoint"
    " http://127.0.0.1:8000/v1 --judge http://127.0.0.1:9000/v1",
    "holotron view labels/screens                            # review what is not certain, with the keyboard",
    "holotron data export labels/screens/accepted grounding.json --as screenspot",
)


def annotate(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE…", help="Screenshots, videos, folders of them, stores, addresses, lists (.txt)."
        ),
    ],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder of the labels; a second run goes on in it.")],
    labels: Annotated[str, typer.Option(help=f"Which, with commas between: {', '.join(KINDS)}.")] = ",".join(KINDS),
    model: policies.ModelOption = None,
    endpoint: policies.EndpointOption = None,
    name: policies.NameOption = None,
    format_: policies.FormatOption = None,
    judge: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server that says whether labels are right.")
    ] = None,
    judge_name: policies.JudgeNameOption = None,
    method: Annotated[str, typer.Option(help=f"How it judges episodes: {' or '.join(JUDGES)}.")] = "webjudge",
    votes: Annotated[int, typer.Option(min=1, max=99, help="Points and judgements asked for; most of them count.")] = 1,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of both; above 0, votes may differ.")] = 0.0,
    elements: Annotated[int, typer.Option(min=1, max=200, help="Most elements that a model names on a screen.")] = 20,
    per_screen: Annotated[int, typer.Option(min=1, max=200, help="Elements of a screen with instructions.")] = 4,
    pages: Annotated[
        bool, typer.Option("--pages", help="Open the pages of stored steps; those that look the same are asked.")
    ] = False,
    size: Annotated[str, typer.Option(help="Of the browser's window, for addresses.")] = "1280x800",
    sessions: Annotated[int, typer.Option(min=1, max=512, help="Screens at once.")] = 16,
    browsers: Annotated[int, typer.Option(min=1, max=64, help="Chromium processes.")] = 1,
    max_tokens: policies.MaxTokensOption = 1500,
    allow_private: policies.AllowPrivateOption = None,
    prices: policies.PricesOption = None,
    json: JsonOption = False,
) -> None:
    """Label screens and episodes. What a page's DOM says is exact; what a model says is accepted where it agrees.

    A model's element or instruction is accepted if the model, asked where that is, points into the box; its captions
    and thoughts if the judge says they are right. The rest waits for a person: `holotron view DIR`. Accepted labels
    become episodes in DIR/accepted. After any interruption the same command goes on and pays for no answer twice.
    """
    from holotron.episodes.errors import EpisodeError
    from holotron.episodes.labels import ACCEPTED
    from holotron.eval.annotation.accepted import write_accepted
    from holotron.eval.annotation.annotate import Annotation, AnnotationSettings
    from holotron.eval.annotation.inputs import InputError, find_inputs
    from holotron.eval.evaluate import EvalError, keep_manifest
    from holotron.eval.grounding_run import localizer_of
    from holotron.eval.judges import find_judge
    from holotron.plan.workload import parse_size

    wanted = tuple(listed(labels))
    for kind in wanted or ("",):
        choose("--labels", kind, KINDS)
    choose("--method", method, JUDGES)
    with misuse(InputError, EpisodeError, ValueError):
        inputs, window = find_inputs(sources), parse_size("--size", size)
    asked = model is not None or endpoint is not None
    chosen = Chosen(model, False, endpoint, name, format_)
    if endpoint in ("openai", "anthropic"):
        raise Misuse(f"--endpoint {endpoint} is a computer tool, which only acts; name an OpenAI-compatible address")
    blind = inputs.videos or any(item.path is not None for item in inputs.items)
    if not asked and blind and not pages and {"elements", "instructions", "captions", "thoughts"} & {*wanted}:
        raise Misuse("only pages say themselves what is on them; screenshots, videos and episodes need --endpoint URL")
    settings = AnnotationSettings(
        out, wanted, elements, per_screen, votes, sessions, browsers, window, pages, tuple(allow_private or ())
    )
    table = price_table(prices)
    with agent_failures():
        localizer = localizer_of(chosen.policy_format()) if asked else None

    async def main() -> dict[str, Any]:
        async with AsyncExitStack() as stack:
            policy = judging = None
            if localizer is not None:
                style = replace(localizer.options(max_tokens), temperature=temperature, record_tokens=False)
                policy = (await stack.enter_async_context(opened(chosen, style)), chosen.label)
            if judge is not None:
                judging = await stack.enter_async_context(judge_at(judge, judge_name, temperature, 300.0))
            keep_manifest(
                out,
                {
                    "sources": list(sources),
                    "labels": list(wanted),
                    "model": policy[1] if policy else None,
                    "judge": judging[1] if judging else None,
                    "votes": votes,
                    "elements": elements,
                    "per_screen": per_screen,
                    "size": list(window),
                },
            )
            run = Annotation(settings, inputs, policy, judging, prices=table, method=find_judge(method))
            if localizer is not None:
                run.localizer = localizer
            with passing_progress("labelled") as told:
                run.on_change = lambda done, total: told(completed=done, total=total)
                return await run.run()

    with registered("annotate"), agent_failures(), misuse(EvalError, InputError):
        report = asyncio.run(main())
    report["accepted_episodes"] = dict(write_accepted(out))
    (out / "report.json").write_text(json_text.dumps(report, indent=1), encoding="utf-8")
    if json:
        print_json(report)
        return
    rows = plain_table("label", "accepted", "to review")
    for kind, count in report["labels"].items():
        rows.add_row(kind, str(count.get("accepted", 0)), str(count.get("review", 0)))
    screen = console()
    screen.print(rows)
    for said, spent in report["models"].items():
        money = "" if spent["cost"] is None else f", {spent['cost']:.4f} {table.currency if table else ''}"
        screen.print(f"{said}: {spent['answers']} answers, {spent['asked_now']} of them now{money}", soft_wrap=True)
    for kind, count in report["problems"].items():
        screen.print(f"{count} × {kind}, such as {report['examples'][kind]}", soft_wrap=True, markup=False)
    screen.print(
        f"{report['screens']} screens, {report['items_per_second']} a second. Review: holotron view {out}. Accepted: "
        f"{out / ACCEPTED}",
        soft_wrap=True,
    )
