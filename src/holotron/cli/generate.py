"""`holotron data ground|oracle|pages`: samples made to learn from, by browsers in worker processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from holotron.cli.errors import DONE, FAILED, Misuse, failure, misuse
from holotron.cli.output import examples
from holotron.cli.process_registry import registered

GROUND_EXAMPLES = examples(
    "holotron data ground --out data/ground --samples 10000 --workers 8",
    "holotron data ground --out data/screens --mix pages=3,packages=1",
    "holotron data ground --view ground.html 50",
)
ORACLE_EXAMPLES = examples(
    "holotron data oracle --out data/oracle --episodes 5000 --workers 2",
    "holotron data oracle --out data/dagger --model runs/navigation/weights --episodes 2000",
    "holotron data oracle click-button login-user --episodes 20",
)
PAGES_EXAMPLES = examples(
    "holotron data pages --out data/pages --samples 5000 --workers 4",
    "holotron data pages --out data/pages-dagger --model runs/navigation/weights --samples 2000",
    "holotron data pages --try --samples 10 --noise 0",
)

ShardsOption = Annotated[Path | None, typer.Option("--out", file_okay=False, help="Folder of the shards.")]
WorkersOption = Annotated[int, typer.Option(min=1, max=256, help="Processes, each with a browser of its own.")]


def ground(
    out: ShardsOption = None,
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
        )
    with _making(miniwob=weights.get("miniwob", 0) > 0):
        if view is not None:
            write_view(*view, settings)
            typer.echo(view[0])
            return
        with _workers_stop_first():
            (made,) = _in_processes(generate, [settings])
    typer.echo(f"{made} samples written to {out}")


def _weights(text: str) -> dict[str, float]:
    try:
        return {name.strip(): float(weight) for name, weight in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise Misuse(f"--mix is {text!r}; write it like widgets=4,pages=3") from None


def oracle(
    tasks: Annotated[list[str] | None, typer.Argument(help="Tasks of MiniWoB++; all that have an oracle.")] = None,
    out: ShardsOption = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="In all; without --out of each task (20).", show_default=False)
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="Stop after that time.")] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Probability of a random action before a step (default: 0.1; with --table 0.2; trying 0).",
        ),
    ] = None,
    workers: WorkersOption = 1,
    pages: Annotated[int, typer.Option(min=1, max=64, help="Of each browser.")] = 4,
    first_seed: Annotated[int, typer.Option(min=0)] = 0,
    split: Annotated[str | None, typer.Option(help="train or test: only tasks of that part of BrowserGym's.")] = None,
    model: Annotated[str | None, typer.Option(help="A policy: collect on the states it gets itself into.")] = None,
    device: Annotated[str | None, typer.Option(help="Of the policy: cpu or cuda.")] = None,
    save: Annotated[
        Path | None, typer.Option(file_okay=False, help="Without --out: keep each task's first screenshots there.")
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Without --out: play undisturbed and disturbed, write the results there."),
    ] = None,
) -> None:
    """Collect episodes by teachers that see inside the page, until there are enough or Ctrl-C; without --out try them.

    Only solved episodes are kept. With a policy it plays, and the teacher says where it should have done otherwise.
    """
    if out is None and model is not None:
        raise Misuse("--model goes with --out FOLDER, where what is collected goes")
    if out is not None and (save is not None or table is not None):
        raise Misuse("--save and --table go with trying the teachers, without --out")
    chosen = _oracle_tasks(tasks or [], split)
    if table is not None:
        _write_table(table, chosen, episodes or 20, 0.2 if noise is None else noise, pages)
        return
    if out is None:
        from holotron.suites.miniwob.oracle.trial import try_oracles

        with _making(miniwob=True):
            asyncio.run(try_oracles(chosen, episodes or 20, noise or 0.0, save))
        return
    if model is not None:
        _check_model(model)
    from holotron.suites.miniwob.oracle.collect import Collecting
    from holotron.suites.miniwob.oracle.workers import collect_all

    asked = Collecting(
        out,
        tuple(chosen),
        workers=workers,
        first_seed=first_seed,
        episodes=None if episodes is None else -(-episodes // workers),
        seconds=seconds,
        pages=pages,
        noise=0.1 if noise is None else noise,
    )
    with _making(miniwob=True), _workers_stop_first():
        counts = collect_all(asked, model, device)
    for task in chosen:
        if played := counts[f"kept {task}"] + counts[f"lost {task}"]:
            typer.echo(f"{task:32} {counts[f'kept {task}']:6d} of {played:6d} kept")
    typer.echo(f"{counts['samples']} samples, {counts['steps']} steps, {counts['broken']} broken episodes")


def _check_model(name: str) -> None:
    from holotron.model.errors import ModelError
    from holotron.model.loading import find_checkpoint

    with misuse(ModelError):
        find_checkpoint(name)


def _write_table(path: Path, tasks: Sequence[str], episodes: int, noise: float, pages: int) -> None:
    from holotron.suites.miniwob.oracle.table import table, try_all

    with _making(miniwob=True):
        tried = asyncio.run(try_all(tasks, episodes, noise, pages))
        path.write_text(table(tried, noise, shlex.join(["holotron", *sys.argv[1:]])), encoding="utf-8")
    typer.echo(path)


def _oracle_tasks(names: Sequence[str], split: str | None) -> list[str]:
    from holotron.suites.miniwob.errors import MiniWoBError
    from holotron.suites.miniwob.oracle.teachers import taught_tasks

    if split not in (None, "train", "test"):
        raise Misuse(f"--split is {split!r}; choose train or test")
    with misuse(MiniWoBError):
        return taught_tasks(names, split)


def pages(
    templates: Annotated[list[str] | None, typer.Argument(help="Templates; all that are for training.")] = None,
    out: ShardsOption = None,
    samples: Annotated[int, typer.Option(min=1, help="How many; with --try of each template.")] = 100,
    workers: WorkersOption = 1,
    seed: Annotated[int, typer.Option(help="The same one makes the same samples again.")] = 0,
    noise: Annotated[float, typer.Option(min=0, max=1, help="Probability of a disturbance before each step.")] = 0.1,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="The templates kept for evaluation, and only those.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="A policy: collect on the states it gets itself into.")] = None,
    device: Annotated[str | None, typer.Option(help="Of the policy: cpu or cuda.")] = None,
    tries: Annotated[bool, typer.Option("--try", help="Write nothing, print success per template.")] = False,
    save: Annotated[Path | None, typer.Option(file_okay=False, help="With --try: keep the screenshots there.")] = None,
) -> None:
    """Make episodes on generated full-size pages. Ctrl-C keeps what was made."""
    if (out is None) != tries:
        raise Misuse("say one of --out FOLDER, for shards, and --try, which writes none")
    if save is not None and not tries:
        raise Misuse("--save goes with --try")
    if model is not None:
        if tries:
            raise Misuse("--model goes with --out FOLDER, where what is collected goes")
        _check_model(model)
    from holotron.suites.pages.task import all_templates

    kept = {found.name for found in all_templates(held_out=True)}
    training = {found.name for found in all_templates(held_out=False)}
    names = tuple(templates or sorted(kept if held_out else training))
    for name in names:
        if name not in kept | training:
            raise Misuse(f"there is no template {name!r}; there are {', '.join(sorted(kept | training))}")
        if name in kept and not (held_out or tries):
            raise Misuse(f"{name} is held out for evaluation; say --held-out if that is what it is for")
    if out is None:
        from holotron.suites.pages.trial import try_templates

        with _making():
            fine = asyncio.run(try_templates(names, samples, noise, seed, save))
        raise typer.Exit(DONE if fine else FAILED)
    from holotron.suites.pages.make import Wanted, work

    shares = [samples // workers + (index < samples % workers) for index in range(workers)]
    wanted = [
        Wanted(out / f"pages-{seed}-{index}", share, f"{seed}/{index}", noise, names, model, device)
        for index, share in enumerate(shares)
    ]
    began = time.monotonic()
    with _making(), _workers_stop_first():
        steps = sum(_in_processes(work, wanted))
    seconds = time.monotonic() - began
    typer.echo(f"{samples} samples, {steps} steps in {seconds:.0f} s: {steps / seconds:.1f} steps/s")


def _in_processes(work: Callable[[Any], int], parts: Sequence[Any]) -> list[int]:
    """Each part in a process and a session of its own: the terminal's Ctrl-C must not reach the browsers in there."""
    from concurrent.futures import ProcessPoolExecutor

    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(parts), spawn, initializer=_begin) as processes:
        return list(processes.map(work, parts))


def _begin() -> None:
    from holotron.env.workers import end_with_parent

    os.setsid()
    end_with_parent()


@contextmanager
def _making(miniwob: bool = False) -> Iterator[None]:
    """Where samples are made: `holotron stop` ends it, and what this machine lacks is told in a line, before."""
    from holotron.env.browser.chromium import find_chromium
    from holotron.env.errors import EnvError
    from holotron.suites.miniwob.errors import MiniWoBMissing
    from holotron.suites.miniwob.tasks import html_folder

    path, how = find_chromium()
    if path is None:
        raise OSError(f"there is no Chromium ({how}); holotron doctor names the command that installs it")
    with registered("data"), failure(EnvError, MiniWoBMissing):
        if miniwob:
            html_folder()
        yield


@contextmanager
def _workers_stop_first() -> Iterator[None]:
    """Inside, Ctrl-C is for the worker processes, which finish what they write and end; a second one kills them."""
    told = False

    def tell(number: int, frame: Any) -> None:
        nonlocal told
        workers = [worker.pid for worker in multiprocessing.active_children() if worker.pid is not None]
        for pid in workers:
            if not told:
                os.kill(pid, signal.SIGINT)
            elif os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)  # with all that it has started
            else:
                os.kill(pid, signal.SIGKILL)
        if told or not workers:
            raise KeyboardInterrupt
        told = True

    # A terminal that is closed tells only this process, too.
    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
