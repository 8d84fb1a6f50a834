"""`holotron data screens|miniwob|pages|libraries`: what policies learn from, made by browsers in worker processes."""

from __future__ import annotations

import asyncio
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holotron.cli.errors import FAILED, Misuse, failure, misuse
from holotron.cli.output import examples
from holotron.cli.policies import (
    Chosen,
    LibrariesOption,
    RayOption,
    agent_failures,
    opened,
    player,
    use_libraries,
    without,
)
from holotron.cli.process_registry import registered
from holotron.cli.progress import fleet_progress

if TYPE_CHECKING:
    from holotron.episodes.fleet import Counters

SCREENS_EXAMPLES = examples(
    "holotron data screens --out data/screens --samples 10000 --workers 8",
    "holotron data screens --out data/pages-only --mix pages=3,packages=1",
    "holotron data screens --view screens.html 50 --mix libraries=1",
)
MINIWOB_EXAMPLES = examples(
    "holotron data miniwob --out data/miniwob --split train --episodes 5000 --workers 2",
    "holotron data miniwob --out data/miniwob-varied --varied --episodes 5000 --workers 2",
    "holotron data miniwob --out data/dagger --model runs/navigation/weights --episodes 2000",
    "holotron data miniwob click-button login-user --episodes 20 --noise 0.2 --table teachers.md",
)
PAGES_EXAMPLES = examples(
    "holotron data pages --out data/pages --episodes 5000 --workers 4",
    "holotron data pages --out data/pages-dagger --model runs/navigation/weights --episodes 2000",
    "holotron data pages --out data/pages --episodes 50000 --ray 10.0.0.1:6379 --workers 32",
    "holotron data pages login table_ask --episodes 10 --save pictures",
)
LIBRARIES_EXAMPLES = examples(
    "holotron data fetch-libraries",
    "holotron data libraries --out data/libraries --episodes 5000 --workers 4",
    "holotron data libraries bulma/login carbon/mosaic_rows --episodes 3 --save pictures",
)
FETCH_EXAMPLES = examples("holotron data fetch-libraries", "holotron data fetch-libraries --out data/ui")
EPISODES = 1000
TRIALS = 20  # of each task, where nothing is kept
WILD = 0.5  # the temperature of a policy that is corrected: it shall go astray in more than one way

VariedOption = Annotated[
    bool, typer.Option("--varied", help="On canvases, at zooms, in colours and letters that are drawn from the seed.")
]
WorkersOption = Annotated[int, typer.Option(min=1, max=256, help="Processes, each with a browser of its own.")]


def screens(
    out: Annotated[Path | None, typer.Option("--out", file_okay=False, help="Folder of the shards.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="How many screens; a few of them give no sample.")] = 1000,
    asks: Annotated[int, typer.Option(min=1, help="Samples of one screen, each with other questions.")] = 1,
    workers: WorkersOption = 1,
    mix: Annotated[
        str | None, typer.Option(help="Weights of the sources (default: widgets=4,miniwob=3,pages=3,packages=1).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The first seed; each screen takes one.")] = 0,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Seeds, templates and themes kept for evaluation.")
    ] = False,
    folder: Annotated[
        list[Path] | None,
        typer.Option(exists=True, file_okay=False, help="Where the source packages looks for HTML; may be repeated."),
    ] = None,
    varied: VariedOption = False,
    libraries: LibrariesOption = None,
    shard_mib: Annotated[int, typer.Option(min=1, help="Size of a shard.")] = 64,
    view: Annotated[
        tuple[Path, int] | None,
        typer.Option(metavar="FILE.html N", help="Write N samples as a page to look at, and no shards."),
    ] = None,
) -> None:
    """Make screenshots with questions about what is on them. After Ctrl-C the same command goes on where it was."""
    if (out is None) == (view is None):
        raise Misuse("say one of --out FOLDER, for shards, and --view FILE.html N, for a page to look at")
    from holotron.suites.screens.generate import DEFAULT_MIX, GroundError, GroundSettings, generate
    from holotron.suites.screens.viewer import write_view

    with misuse(GroundError):
        weights = DEFAULT_MIX if mix is None else _weights(mix)
        settings = GroundSettings(
            out or Path("."),
            samples,
            workers,
            weights,
            seed,
            held_out,
            tuple(folder or ()),
            shard_mib << 20,
            asks=asks,
            varied=varied,
        )
    with _making(miniwob=weights.get("miniwob", 0) > 0):
        if view is not None:
            write_view(*view, settings)
            typer.echo(view[0])
            return
        made = generate(settings)
    typer.echo(f"{made} samples written to {out}")


def fetch(
    out: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Where to (default: HOLOTRON_LIBRARIES, or ~/.cache/holotron/libraries)."),
    ] = None,
) -> None:
    """Fetch the UI libraries that the suite and the screens `libraries` show, with npm, pip and apt-get (Debian).

    From then on no network is needed. What is there already is not fetched again.
    """
    from holotron.suites.libraries.fetch import fetch_libraries

    use_libraries(out)
    with registered("data"):
        typer.echo(fetch_libraries(lambda what: print(what, file=sys.stderr, flush=True)))


def _weights(text: str) -> dict[str, float]:
    try:
        return {name.strip(): float(weight) for name, weight in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise Misuse(f"--mix is {text!r}; write it like widgets=4,pages=3") from None


def teaching(suite_name: str, what: str) -> Callable[..., None]:
    """The command that lets the teachers of a suite play."""

    def command(
        tasks: list[str] | None = None,
        out: Annotated[
            Path | None,
            typer.Option("--out", file_okay=False, help="Folder of the episodes; a second run goes on in it."),
        ] = None,
        episodes: Annotated[
            int | None,
            typer.Option(
                min=1, help=f"In all ({EPISODES}); without --out, of each task ({TRIALS}).", show_default=False
            ),
        ] = None,
        first_seed: Annotated[int, typer.Option(min=0, help="Each round over the tasks takes the next one.")] = 0,
        noise: Annotated[
            float | None,
            typer.Option(
                min=0,
                max=1,
                help="How often something clumsy is done first (0.1; without --out 0).",
                show_default=False,
            ),
        ] = None,
        split: Annotated[str | None, typer.Option(help="Only tasks of that part of the suite.")] = None,
        varied: VariedOption = False,
        libraries: LibrariesOption = None,
        model: Annotated[
            str | None, typer.Option(help="A policy: it plays, and the teacher says where it should do otherwise.")
        ] = None,
        endpoint: Annotated[str | None, typer.Option(help="The same, behind an OpenAI-compatible address.")] = None,
        device: Annotated[str | None, typer.Option(help="Of the policy: cpu or cuda.")] = None,
        workers: WorkersOption = 1,
        ray: RayOption = None,
        sessions: Annotated[
            int | None, typer.Option(min=1, max=512, help="Episodes at once (4 a worker).", show_default=False)
        ] = None,
        save: Annotated[
            Path | None, typer.Option(file_okay=False, help="Keep the screenshots of each task's first episode there.")
        ] = None,
        table: Annotated[
            Path | None, typer.Option(dir_okay=False, help="Write what came of each task there, as Markdown.")
        ] = None,
    ) -> None:
        """Let teachers that see inside the page play, and keep every episode. Ctrl-C and the same command go on.

        Without --out the teachers are tried out: a few episodes of each task, of which only the table stays.
        """
        if out is None and (model or endpoint) is not None:
            raise Misuse("--model goes with --out FOLDER, where its episodes go, and so does --endpoint")
        from holotron.agent.agent import Budget
        from holotron.agent.policy_format import NANO
        from holotron.episodes.record import PolicyInfo
        from holotron.episodes.store import EpisodeStore
        from holotron.episodes.summary import markdown, save_pictures, summarise
        from holotron.suites.play import Play
        from holotron.suites.suite import SuiteError, find_suite

        chance = (0.0 if out is None else 0.1) if noise is None else noise
        with misuse(SuiteError):
            suite = find_suite(f"{suite_name}-varied" if varied else suite_name)
            names = suite.select(tasks or (), split, training=out is not None)
            if out is None:
                wanted = suite.tasks(names, range(first_seed, first_seed + (episodes or TRIALS)))
            else:
                wanted = suite.training_tasks(names, first_seed, episodes or EPISODES)
        chosen = None if model is None and endpoint is None else Chosen(model, False, endpoint, None)
        playing = player(ray, chosen)
        policy_format, who = NANO.with_kinds(suite.kinds), PolicyInfo(model="teacher")
        if chosen is not None:
            chosen.check()
            policy_format = chosen.policy_format(True, suite.kinds)
            who = PolicyInfo(model=chosen.label, extra={"format": policy_format.spec}, sampling={"temperature": WILD})
        style = policy_format.options(160, WILD)

        async def main(store: Path) -> Counters:
            play = Play(
                suite,
                store,
                who,
                policy_format,
                # A policy that says what is no action is taught at that step and not asked again.
                Budget(steps=suite.max_steps, max_misunderstood=1),
                suite.rule,
                taught=True,
                noise=chance,
                calm=0.0 if out is None else suite.calm,
            )
            with fleet_progress(f"{suite.name}, {who.model}") as update:
                run = partial(
                    playing, play, wanted, sessions=sessions or 4 * workers, workers=workers, on_change=update
                )
                if chosen is None:
                    return await run(None)
                async with opened(chosen, style, device) as policy:
                    return await run(policy)

        with (
            _making(suite_name == "miniwob", out is not None),
            agent_failures(),
            tempfile.TemporaryDirectory() as scratch,
        ):
            store = EpisodeStore(out or Path(scratch))
            counters = asyncio.run(main(store.folder))
            rows = summarise(store, names)
            if save is not None:
                save_pictures(store, save)
        if table is not None:
            table.write_text(markdown(rows, shlex.join(["holotron", *sys.argv[1:]])), encoding="utf-8")
        for row in rows:
            losses = f"  {row.losses}" if row.losses else ""
            typer.echo(f"{row.task:32} {row.solved:5d} of {row.played:5d} solved, {row.mean_steps:4.1f} steps{losses}")
        there = f", {counters.skipped} were there already" if counters.skipped else ""
        lost = f", {counters.infrastructure} lost to the infrastructure" if counters.infrastructure else ""
        typer.echo(f"{counters.finished} episodes, {counters.steps} steps{there}{lost}")
        if out is None and not chance and any(row.solved < row.played for row in rows):
            raise typer.Exit(FAILED)

    named = typer.Argument(help=f"{what}; all that are for training.")
    command.__annotations__["tasks"] = Annotated[list[str] | None, named]
    return without(command, "varied" if suite_name == "libraries" else "libraries")


@contextmanager
def _making(miniwob: bool = False, goes_on: bool = False) -> Iterator[None]:
    """Where data is made: `holotron stop` ends it, and what this machine lacks is told in a line, before."""
    from holotron.env.browser.chromium import require_chromium
    from holotron.env.errors import EnvError
    from holotron.suites.miniwob.tasks import MiniWoBMissing, html_folder

    with registered("data", goes_on), failure(EnvError, MiniWoBMissing):
        require_chromium()
        if miniwob:
            html_folder()
        yield
