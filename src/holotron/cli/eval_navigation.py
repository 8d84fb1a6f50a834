"""`holotron eval navigation`: tasks on live sites, and a judge of what came of them."""

from __future__ import annotations

import asyncio
import json as json_text
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holotron.cli import policies
from holotron.cli.errors import Misuse, choose, fail_if_all_lost, listed, misuse
from holotron.cli.output import JsonOption, console, examples, print_json
from holotron.cli.policies import Chosen, agent_failures, opened, price_table
from holotron.cli.process_registry import registered
from holotron.cli.progress import fleet_progress, passing_progress

if TYPE_CHECKING:
    from holotron.agent.endpoint import EndpointModel
    from holotron.suites.navigation import TaskList

MIND2WEB = "online-mind2web"
BENCHMARKS = ("webvoyager-original-643", "webvoyager-browser-use-588", "webvoyager-magnitude-590", MIND2WEB)
JUDGES = ("webvoyager", "webjudge")
EXAMPLES = examples(
    "holotron eval navigation webvoyager-original-643 --data WebVoyager_data.jsonl --endpoint http://127.0.0.1:8000/v1"
    " --judge https://api.openai.com/v1 --judge-name gpt-4o --votes 3 --prices prices.toml",
    "holotron eval navigation webvoyager-browser-use-588 --data WebVoyager_data.jsonl --without"
    " WebVoyagerImpossibleTasks.json --endpoint http://127.0.0.1:8000/v1 --attempts 3 --trajectories for-other-judges",
    "holotron eval navigation online-mind2web --data Online_Mind2Web.json --date 2025-12-14 --no-play --out runs/first"
    " --judge https://api.openai.com/v1 --judge-name o4-mini --labels people.json",
)


def navigation(
    benchmark: Annotated[str, typer.Argument(metavar="BENCHMARK", help=", ".join(BENCHMARKS))],
    data: Annotated[Path, typer.Option(help="Its published list of tasks.", dir_okay=False)],
    without: Annotated[
        Path | None, typer.Option(dir_okay=False, help="The published ids that a subset leaves out.")
    ] = None,
    patches: Annotated[
        Path | None, typer.Option(dir_okay=False, help="New texts of tasks by id, and removals.")
    ] = None,
    date: Annotated[
        str | None, typer.Option(help=f"Of the list, such as 2025-12-14; {MIND2WEB}, whose tasks change, needs it.")
    ] = None,
    model: policies.ModelOption = None,
    endpoint: policies.EndpointOption = None,
    name: policies.NameOption = None,
    format_: policies.FormatOption = None,
    judge: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server that judges; without one, nothing is judged.")
    ] = None,
    judge_name: policies.JudgeNameOption = None,
    method: Annotated[
        str | None, typer.Option(help=f"How it is asked: {' or '.join(JUDGES)} (default: as the benchmark does).")
    ] = None,
    judge_images: Annotated[
        int | None, typer.Option(min=1, help="Most screenshots that a verdict is given from (default: the method's).")
    ] = None,
    judge_temperature: Annotated[float, typer.Option(min=0.0, help="Above 0, votes may differ.")] = 0.0,
    judge_seconds: Annotated[
        float, typer.Option(min=0.1, help="In which it must answer; it is asked 4 times.")
    ] = 120.0,
    judge_sessions: Annotated[int, typer.Option(min=1, max=512, help="Episodes that are judged at once.")] = 16,
    votes: Annotated[int, typer.Option(min=1, max=99, help="Verdicts asked for; the opinion of most counts.")] = 1,
    attempts: Annotated[int, typer.Option(min=1, max=100, help="Episodes of each task; above 1: pass@k.")] = 1,
    tasks: Annotated[str | None, typer.Option(help="Some of the tasks, by their ids, with commas between.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first tasks, to try it out.")] = None,
    sessions: Annotated[int, typer.Option(min=1, max=512, help="Episodes that are played at once.")] = 8,
    workers: policies.WorkersOption = 1,
    browsers: policies.BrowsersOption = 1,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Of an episode (default: the benchmark's).")] = None,
    size: Annotated[str, typer.Option(help="Of the browser's window.")] = "1024x768",
    minutes: Annotated[float, typer.Option(min=0.1, help="In which an episode must end.")] = 20.0,
    temperature: policies.TemperatureOption = 0.0,
    max_tokens: policies.MaxTokensOption = 512,
    device: policies.DeviceOption = None,
    allow_private: policies.AllowPrivateOption = None,
    out: policies.RunFolderOption = None,
    prices: policies.PricesOption = None,
    labels: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="What people said of tasks or episodes: agreement is told."),
    ] = None,
    trajectories: Annotated[
        Path | None, typer.Option(file_okay=False, help="A folder for each episode, as the judges of others read it.")
    ] = None,
    no_play: Annotated[bool, typer.Option("--no-play", help="Judge what was played, and play nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Tasks on live sites: a named subset of WebVoyager, or Online-Mind2Web of a date. A model judges the episodes.

    What a CAPTCHA, a site that blocks agents or the infrastructure stopped is counted apart.
    """
    from holotron.episodes.store import EpisodeStore
    from holotron.eval.agreement import read_labels
    from holotron.eval.evaluate import EvalError, Evaluation, evaluate, played_episodes
    from holotron.eval.html_report import write_html
    from holotron.eval.judges import find_judge
    from holotron.eval.judging import Judging
    from holotron.eval.navigation import judge_folder, judge_run, judge_settings
    from holotron.eval.trajectories import write_trajectories
    from holotron.plan.workload import parse_size
    from holotron.suites.navigation import NavigationSuite
    from holotron.suites.suite import SuiteError

    layout = MIND2WEB if benchmark == MIND2WEB else "webvoyager"
    method = method or ("webjudge" if layout == MIND2WEB else "webvoyager")
    choose("--method", method, JUDGES)
    if judge is not None and not judge.startswith(("http://", "https://")):
        raise Misuse(f"--judge is {judge!r}; it must be the address of an OpenAI-compatible server")
    if no_play and out is None:
        raise Misuse("--no-play judges what --out DIR holds; name it")
    task_list = _task_list(benchmark, data, without, patches, date)
    with misuse(ValueError):
        people = None if labels is None else read_labels(labels)
        window = parse_size("--size", size)
    table = price_table(prices)
    suite = NavigationSuite.of(task_list, width=window[0], height=window[1], allow_private=tuple(allow_private or ()))
    with misuse(SuiteError):
        protocol = suite.find_protocol(suite.name, listed(tasks) or suite.names()[:limit])
    if len(protocol.tasks) < len(task_list.tasks):
        protocol = replace(protocol, name=f"{task_list.name}, {len(protocol.tasks)} of {len(task_list.tasks)} tasks")
    protocol = replace(protocol, max_steps=max_steps or protocol.max_steps)
    chosen = Chosen(model, False, endpoint, name, format_)
    with agent_failures():
        policy_format = chosen.policy_format(kinds=suite.kinds)
    run = Evaluation(
        suite,
        (protocol,),
        out or Path("runs") / f"{task_list.name}-{chosen.label.rstrip('/').rsplit('/', 1)[-1]}",
        chosen.label,
        policy_format,
        tuple(range(attempts)),
        sessions=sessions,
        workers=workers,
        browsers=browsers,
        seconds=60 * minutes,
    )
    store = EpisodeStore(run.out)

    async def play() -> dict[str, Any]:
        with fleet_progress(f"{protocol.name}, {run.policy}") as update:
            async with opened(chosen, policy_format.options(max_tokens, temperature), device) as acting:
                played = await evaluate(run, acting, update)
        fail_if_all_lost(len(played_episodes(run)), played["infrastructure_failures"], played["problem"])
        return played

    async def main() -> dict[str, Any]:
        if judge is None:
            if not no_play:
                await play()
            # Nothing is known of success, so that no rate may stand there.
            return {"benchmark": task_list.name, "played": len(played_episodes(run)), "task_list": task_list.manifest}
        async with judge_at(judge, judge_name, judge_temperature, judge_seconds) as (asked, label):
            played = {} if no_play else await play()
            way = find_judge(method, judge_images)
            settings = judge_settings(way, label, votes, judge_temperature)
            with passing_progress("judged") as told:
                judging = Judging(
                    store,
                    way,
                    asked,
                    judge_folder(run.out, settings),
                    votes,
                    judge_sessions,
                    lambda done, total: told(completed=done, total=total),
                )
                return played | await judge_run(run, task_list, judging, settings, prices=table, labels=people)

    with registered("eval", goes_on=True), agent_failures(), misuse(EvalError):
        report = asyncio.run(main())
    if trajectories is not None:
        report["trajectories"] = write_trajectories(store, played_episodes(run), trajectories, layout)
    (run.out / "report.json").write_text(json_text.dumps(report, indent=1), encoding="utf-8")
    if judge is not None:
        write_html({"infrastructure_failures": report["not_played"]} | report, run.out / "report.html")
    if json:
        print_json(report)
    else:
        _print(report, run.out)


def _task_list(benchmark: str, data: Path, without: Path | None, patches: Path | None, date: str | None) -> TaskList:
    from holotron.suites.navigation import read_online_mind2web, read_webvoyager
    from holotron.suites.suite import SuiteError
    from holotron.suites.web import TaskFileError

    choose("BENCHMARK", benchmark, BENCHMARKS)
    with misuse(SuiteError, TaskFileError):
        if benchmark != MIND2WEB:
            return read_webvoyager(
                data, benchmark.removeprefix("webvoyager-"), without=without, patches=patches, date=date
            )
        if date is None or without is not None or patches is not None:
            raise Misuse(f"{MIND2WEB} needs --date, which is a part of its name, and takes no --without or --patches")
        return read_online_mind2web(data, date)


@asynccontextmanager
async def judge_at(
    url: str, name: str | None, temperature: float, seconds: float
) -> AsyncIterator[tuple[EndpointModel, str]]:
    """The judge and its name. One that is away is known before anything is played."""
    from holotron.agent.chat import ChatOptions
    from holotron.agent.endpoint import EndpointModel, find_card, find_key

    card = await asyncio.to_thread(find_card, url, name, find_key())
    options = ChatOptions(max_tokens=1000, temperature=temperature, keep_images=None, record_tokens=False)
    asked = EndpointModel(url, name, find_key(), options, sessions=False, seconds=seconds, attempts=4)
    try:
        yield asked, name or str(card.get("id") or url)
    finally:
        await asked.aclose()


def _print(report: dict[str, Any], folder: Path) -> None:
    out = console()
    if "judge" not in report:
        out.print(f"{report['benchmark']}: {report['played']} episodes in {folder}; none is judged", soft_wrap=True)
        return
    rate, (low, high) = report["success_rate"], report["interval"]
    out.print(
        f"{report['protocol']}, {report['policy']}: {'nothing judged' if rate is None else f'{100 * rate:.1f}%'} "
        f"({100 * low:.1f} to {100 * high:.1f}), {report['successes']} of {report['episodes']} with a verdict; "
        f"{100 * report['rate_of_all']:.1f}% of all {report['wanted']}",
        soft_wrap=True,
        markup=False,
    )
    apart = {name: report[name] for name in ("not_played", "captcha", "blocked")} | report["undecided"]
    out.print("without a verdict: " + ", ".join(f"{count} {name}" for name, count in apart.items()), soft_wrap=True)
    if len(report["pass_at"]) > 1:
        shown = ((k, value) for k, value in report["pass_at"].items() if value is not None)
        out.print(", ".join(f"pass@{k} {100 * value:.1f}%" for k, value in shown), soft_wrap=True)
    judge = report["judge"]
    money = "" if judge["cost"] is None else f", {judge['cost']:.4f} {judge['currency']}"
    out.print(
        f"judge {judge['model']} ({judge['judge']}, votes: {judge['votes']}): {judge['calls']} answers{money}. "
        f"Report: {folder / 'report.html'}",
        soft_wrap=True,
    )
    if (found := report.get("agreement")) and found["raw"] is not None:
        kappa = "–" if found["kappa"] is None else f"{found['kappa']:.2f}"
        out.print(f"agrees with people on {100 * found['raw']:.1f}% of {found['labelled']}, kappa {kappa}")
