"""`holotron eval`: how good a policy is, by protocols that have names."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from holotron.cli import eval_compare, eval_grounding, eval_navigation, eval_screens, policies
from holotron.cli.errors import Misuse, fail_if_all_lost, listed, misuse, whole_numbers
from holotron.cli.output import command_group, console, examples, print_json
from holotron.cli.policies import Chosen, agent_failures, opened, player, without
from holotron.cli.process_registry import registered
from holotron.cli.progress import fleet_progress

app = command_group("Evaluate a policy.")


def _add_suite(
    suite_name: str, default: str, about: str, what: str, *samples: str, default_split: str | None = None
) -> None:
    """The command that evaluates on a suite; samples: options of its examples."""

    def command(
        root: policies.RootOption = None,
        apps: policies.AppsOption = None,
        libraries: policies.LibrariesOption = None,
        protocol: str = default,
        size: Annotated[str | None, typer.Option(help="Of the window, for all tasks, such as 800x600.")] = None,
        model: policies.ModelOption = None,
        random: policies.RandomOption = False,
        endpoint: policies.EndpointOption = None,
        name: policies.NameOption = None,
        baseline: Annotated[str | None, typer.Option(help="random, or scripted: the teachers play")] = None,
        tasks: Annotated[str | None, typer.Option(help="Some of the protocol's tasks, with commas between.")] = None,
        split: Annotated[str | None, typer.Option(help="Only tasks of that part of the suite.")] = default_split,
        seeds: Annotated[str | None, typer.Option(help="Other seeds than the protocol's, with commas between.")] = None,
        episodes_per_task: Annotated[int | None, typer.Option(min=1, help="Fewer than the protocol's.")] = None,
        sessions: Annotated[int, typer.Option(min=1, max=512, help="Episodes that are played at once.")] = 8,
        workers: policies.WorkersOption = 1,
        engines: policies.EnginesOption = 1,
        browsers: policies.BrowsersOption = 1,
        ray: policies.RayOption = None,
        out: policies.RunFolderOption = None,
        temperature: policies.TemperatureOption = 0.0,
        max_tokens: policies.MaxTokensOption = 256,
        noise: Annotated[
            float, typer.Option(min=0, max=1, help="With scripted: how often something clumsy comes first.")
        ] = 0,
        device: policies.DeviceOption = None,
        bare: policies.BareOption = False,
        format_: policies.FormatOption = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    ) -> None:
        from holotron.agent.baselines import RandomModel
        from holotron.agent.policy_format import JsonFormat
        from holotron.eval.evaluate import EvalError, Evaluation, evaluate
        from holotron.eval.html_report import write_html
        from holotron.plan.errors import PlanError
        from holotron.plan.workload import parse_size
        from holotron.suites.suite import SuiteError, find_suite

        with misuse(SuiteError, PlanError):
            suite = find_suite(suite_name, root, listed(apps))
            if size:
                suite.view = parse_size("--size", size, 100, 8000)
            protocols = [suite.find_protocol(part, listed(tasks), split) for part in listed(protocol)]
        if not protocols:
            raise Misuse("--protocol names none")
        if episodes_per_task is not None:
            protocols = [replace(part, episodes_per_task=episodes_per_task) for part in protocols]
        if baseline not in (None, "random", "scripted"):
            raise Misuse(f"--baseline is {baseline!r}; choose random or scripted")
        if noise and baseline != "scripted":
            raise Misuse("--noise goes with --baseline scripted")
        chosen = None if baseline else Chosen(model, random, endpoint, name, format_)
        if engines > 1 and (chosen is None or chosen.local is None or random or engines > workers):
            raise Misuse(f"--engines {engines} goes with --model, and with at least as many --workers")
        playing = player(ray, chosen)
        policy_format = chosen.policy_format(bare, suite.kinds) if chosen else JsonFormat(suite.kinds)
        if suite_name == "plain" and not size:
            suite.view = policy_format.size
        label = baseline or (chosen.label if chosen else "")
        folder = out or Path("runs") / f"{suite_name}-{_slug(protocol)}-{_slug(label)}"
        run = Evaluation(
            suite,
            tuple(protocols),
            folder,
            label,
            policy_format,
            whole_numbers("--seeds", seeds),
            sessions=sessions,
            workers=workers,
            browsers=browsers,
            noise=noise,
        )

        async def main() -> dict[str, Any]:
            with fleet_progress(f"{protocol}, {label}") as update:
                if chosen is None:
                    return await evaluate(run, RandomModel() if baseline == "random" else None, update, playing)
                style = policy_format.options(max_tokens, temperature)
                async with opened(chosen, style, device, sessions, engines) as acting:
                    return await evaluate(run, acting, update, playing) | {"engines": engines}

        with registered("eval", goes_on=True), agent_failures(), misuse(EvalError):
            report = asyncio.run(main())
        (folder / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
        write_html(report, folder / "report.html")
        if as_json:
            print_json(report)
        else:
            _print(report, folder)
        fail_if_all_lost(report["episodes"], report["infrastructure_failures"], report["problem"])

    help_text = f"{about}; several with commas between share episodes"
    command.__annotations__["protocol"] = Annotated[str, typer.Option(help=help_text)]
    command.__doc__ = what
    pages = ("pages", "pages-varied", "libraries", "plain")
    own = {"root": ("webapps",), "apps": ("webapps",), "libraries": ("libraries",), "size": pages}
    offered = without(command, *(option for option, suites in own.items() if suite_name not in suites))
    app.command(suite_name, epilog=examples(*(f"holotron eval {suite_name} {sample}" for sample in samples)))(offered)


_add_suite(
    "miniwob",
    "browsergym-125",
    "browsergym-125, strict-125, pix2act-58 or webgum-56",
    "MiniWoB++: 125 small web tasks, pixels only.",
    "--endpoint http://127.0.0.1:8000/v1 --protocol browsergym-125 --sessions 16",
    "--protocol browsergym-125,strict-125 --sessions 168 --workers 14 --engines 2 --device cuda",
    "--endpoint http://10.0.0.1:8000/v1 --ray 10.0.0.1:6379 --workers 16 --sessions 256",
    "--baseline random --tasks click-test,click-button --seeds 1,2,3",
    "--baseline scripted --tasks login-user,enter-text --json",
)
_add_suite(
    "miniwob-varied",
    "strict-125",
    "browsergym-125, strict-125, pix2act-58 or webgum-56",
    "MiniWoB++ on drawn canvases, at drawn places, zooms, colours and letters that training does not draw.",
    "--protocol strict-125 --sessions 112 --workers 14 --device cuda",
    "--baseline scripted --episodes-per-task 1",
)
PAGES_PROTOCOLS = "held-out (templates that nothing was taught on) or taught (their seeds were not)"
_add_suite(
    "pages",
    "held-out",
    PAGES_PROTOCOLS,
    "Tasks on generated full-size pages.",
    "--episodes-per-task 5 --size 800x600",
    "--model runs/navigation/weights --protocol taught --workers 8 --device cuda --out runs/taught",
)
_add_suite(
    "pages-varied",
    "held-out",
    PAGES_PROTOCOLS,
    "Generated pages in views, device pixel ratios, letters and colours that training does not draw.",
    "--episodes-per-task 5",
)
_add_suite(
    "libraries",
    "held-out",
    "held-out (libraries that nothing was taught on) or taught (their seeds were not)",
    "Generated pages in the looks of published UI libraries, fetched before (holotron data fetch-libraries).",
    "--sessions 112 --workers 14 --device cuda",
    "--baseline scripted --episodes-per-task 1 --tasks govuk/login,antd/mosaic_rows",
)
_add_suite(
    "plain",
    "plain",
    "plain: each task once",
    "Tasks on six small pages written by hand, as small sites have them.",
    "--endpoint http://127.0.0.1:8000/v1",
    "--size 800x600 --tasks shop/order,login/rosa",
)
_add_suite(
    "webapps",
    "infinity",
    "infinity: 1440×900, 50 steps, one episode of each task",
    "Real web applications on this machine, in WebArena-Infinity's layout, judged by their verifiers.",
    "--root webarena-infinity --sessions 8 --workers 4",
    "--root webarena-infinity --apps gmail --endpoint http://127.0.0.1:8000/v1 --json",
    "--root webarena-infinity --split function --tasks gmail/function/task_1",
    default_split="real",
)


RECALL_EXAMPLES = examples(
    "holotron eval recall --endpoint http://127.0.0.1:8000/v1 --trials 8 --out runs/recall",
    "holotron eval recall --model ./checkpoint --asked-at 5,20 --trials 2 --keep-images 3 --json",
)


@app.command("recall", epilog=RECALL_EXAMPLES)
def recall(
    model: policies.ModelOption = None,
    random: policies.RandomOption = False,
    endpoint: policies.EndpointOption = None,
    name: policies.NameOption = None,
    asked_at: Annotated[str, typer.Option(help="Steps at which the code of step 3 is asked for.")] = "5,10,20,30,40,50",
    trials: Annotated[int, typer.Option(min=1, max=1000, help="Walks for each of them and each condition.")] = 8,
    seed: Annotated[int, typer.Option(help="Of the pages.")] = 0,
    sessions: Annotated[int, typer.Option(min=1, max=256, help="Walks at once.")] = 4,
    keep_images: Annotated[
        int | None, typer.Option(min=1, help="Screenshots kept in view; without it all: then attention remembers, too")
    ] = None,
    out: policies.RunFolderOption = None,
    max_tokens: policies.MaxTokensOption = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """What a policy remembers: a code shown at step 3 of a walk over rendered pages, asked for many steps later."""
    from holotron.agent.chat import ChatOptions
    from holotron.env.browser.pool import Browsers
    from holotron.eval.evaluate import EvalError
    from holotron.eval.recall import run_recall

    chosen = Chosen(model, random, endpoint, name)
    distances = whole_numbers("--asked-at", asked_at)

    async def main() -> Any:
        style = ChatOptions(max_tokens=max_tokens, keep_images=keep_images, record_tokens=False)
        async with opened(chosen, style) as acting, Browsers() as browsers:
            with fleet_progress("recall") as update:
                return await run_recall(
                    acting,
                    browsers,
                    distances=distances,
                    trials=trials,
                    seed=seed,
                    sessions=sessions,
                    folder=out,
                    on_change=update,
                )

    with registered("eval"), agent_failures(), misuse(EvalError):
        report = asyncio.run(main())
    if as_json:
        print_json(report.to_dict())
    else:
        typer.echo(report.table())


app.command("grounding", epilog=eval_grounding.GROUNDING_EXAMPLES)(eval_grounding.grounding)
app.command("compare", epilog=eval_compare.COMPARE_EXAMPLES)(eval_compare.compare)
app.command("navigation", epilog=eval_navigation.EXAMPLES)(eval_navigation.navigation)
app.command("reading", epilog=eval_screens.READING_EXAMPLES)(eval_screens.reading)


def _print(report: dict[str, Any], folder: Path) -> None:
    table = Table("task", "solved", "rate", "95%", "mean reward", box=None)
    for row in report["tasks"]:
        low, high = row["interval"]
        rate = "–" if row["success_rate"] is None else f"{100 * row['success_rate']:.0f}%"
        reward = "–" if row["mean_reward"] is None else f"{row['mean_reward']:.2f}"
        solved = f"{row['successes']} of {row['episodes']}"
        table.add_row(row["task"], solved, rate, f"{100 * low:.0f}–{100 * high:.0f}%", reward)
    console().print(table)
    times = ", ".join(f"{name} {value:.2f} s" for name, value in report["step_seconds"].items())
    rate = f"{report['steps_per_second']:.1f} steps/s ({report['playing_steps_per_second']:.1f} while it plays)"
    speed = f"{report['seconds']:.0f} s, {rate}, a step: {times}"
    console().print(f"{report['policy']}: {speed}. Report: {folder / 'report.html'}", soft_wrap=True)
    for group, part in report.get("groups", {}).items():
        low, high = part["interval"]
        solved = f"{part['successes']} of {part['episodes']}"
        console().print(f"  {group}: {solved} solved ({100 * low:.1f} to {100 * high:.1f}%)", soft_wrap=True)
    for name, part in report["protocols"].items():
        rate, (low, high) = part["success_rate"], part["interval"]
        console().print(
            f"{name}: {'nothing played' if rate is None else f'{100 * rate:.1f}%'} ({100 * low:.1f} to "
            f"{100 * high:.1f}), {part['successes']} of {part['episodes']} episodes; {part['missing']} missing",
            soft_wrap=True,
        )
        if stopping := part.get("stopping", {}):
            ways = ", ".join(
                f"{kind} {100 * way['share']:.1f}%" for kind, way in stopping.items() if kind != "episodes"
            )
            console().print(f"  stopped, {stopping['episodes']} episodes: {ways}", soft_wrap=True)


def _slug(text: str) -> str:
    return (
        "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in text)[-60:].strip("-.") or "model"
    )
