"""A supervised stage: batches in, a better policy out. Interrupted anywhere, it goes on from its last state."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

from holotron.env.workers import stop_signals
from holotron.episodes.files import whole_file
from holotron.model.heartbeat import to_stderr
from holotron.train.augment import Augment
from holotron.train.batches import Packer
from holotron.train.coordinate_jitter import CoordinateJitter
from holotron.train.learner import Learner
from holotron.train.loader import BatchStream, Cursor, Drawn, load_batches
from holotron.train.loss import Coordinates
from holotron.train.meter import Meter, Progress, TrainingError, told_evaluation
from holotron.train.parallel import join
from holotron.train.recipe import DataSource, Recipe
from holotron.train.results import METRICS
from holotron.train.run_folder import begun_recipe, claim_folder, plain_recipe
from holotron.train.sequences import SequenceWriter
from holotron.train.sinks import Sink, check_sinks, figures_of, open_sinks
from holotron.train.state import NAME as STATE
from holotron.train.state import StateWriter, check_room, load_state
from holotron.train.suite_evaluation import SuiteEvaluation

WEIGHTS = "weights"


class Interrupted(RuntimeError):
    """A run that was asked to stop, and has kept its state."""


class Trainer:
    """One run of a recipe, in a folder of its own. Where torchrun started several processes, each has one of these."""

    def __init__(self, recipe: Recipe, out: Path, device: torch.device | str | None = None) -> None:
        self.ranks, place = join(torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")))
        batches = recipe.batches or begun_recipe(out).get("batches") or self.ranks.size
        if batches % self.ranks.size:
            raise TrainingError(
                f"{batches} batches a step cannot be shared by {self.ranks.size} processes; start a number of them "
                "that divides it, or set batches in the recipe of a new run"
            )
        self.recipe, self.out = replace(recipe, batches=batches), out
        self.learner = Learner(self.recipe, place, self.ranks)
        self.packer = Packer(self.learner.model.config, recipe.batch)
        self.writer = SequenceWriter(self.learner.writer)
        check_sinks(recipe.sinks)
        self.evaluation = SuiteEvaluation(out, recipe.eval)
        self.sinks: list[Sink] = []
        self.step = 0
        self.cursors: dict[int, Cursor] = {}
        self._stopped = False

    def run(self, on_progress: Callable[[Progress], None] = lambda _: None) -> Path:
        """Train to the end and leave a checkpoint; its folder. A stopped run keeps its state and raises Interrupted."""
        claim_folder(self.out, self.recipe, self.ranks)
        if self.ranks.first:
            self.sinks = open_sinks(self.recipe.sinks, self.out, self.recipe.name, plain_recipe(self.recipe))
        try:
            return self._train(on_progress)
        finally:
            self.evaluation.stop()
            for sink in self.sinks:
                sink.close()

    def _train(self, on_progress: Callable[[Progress], None]) -> Path:
        learner, recipe, began = self.learner, self.recipe, time.monotonic()
        if (self.out / STATE).exists():
            self.step, self.cursors = load_state(
                self.out, learner.model, learner.optimizers, learner.average, self.ranks
            )
        check_room(self.out, learner.model, self.ranks)
        meter, before = Meter(learner), list[dict[int, Cursor]]()  # where each step since the last line began
        # A signal ends the run behind the step in hand; what is being written is written to its end.
        with StateWriter(self.out, self.ranks) as states, stop_signals(lambda *_: self.stop()):
            batches = self.batches()
            while self.step < recipe.steps:
                with meter.waiting():
                    drawn = next(batches)
                before.append(dict(self.cursors))
                losses, gradient = learner.learn([each.batch for each in drawn], self.step)
                self.cursors.update((each.stream, each.cursor) for each in drawn)
                self.step += 1
                meter.count(drawn, losses, gradient)
                ends = self.step == recipe.steps
                tells = ends or self.step % recipe.log_every == 0
                if tells:
                    self._check(meter, before)
                    measures = recipe.held_out and (ends or self.step % recipe.held_out_every < recipe.log_every)
                    progress = meter.progress(self.step, began, self.held_out_loss() if measures else None)
                    before.clear()
                    if self.ranks.first:
                        progress.evaluation = self.evaluation.result()
                        self._note(progress)
                        on_progress(progress)
                told = self.ranks.gather((self._stopped, states.broken))  # one that is to stop stops them all
                self._stopped = any(stopped for stopped, _ in told)
                if any(broken for _, broken in told):
                    states.end()
                if self._stopped or self.step % recipe.keep_every == 0:
                    self._check(meter, before)
                    self.keep(states)
                if self.evaluation.due(self.step, ends) and not self._stopped:
                    self._evaluate()
                if self._stopped:
                    states.end()
                    raise Interrupted(f"stopped after step {self.step} of {recipe.steps}; run it again to go on")
            self.keep(states)
            states.end()
        self._tell_evaluation()
        return learner.export(self.out / WEIGHTS)

    def _evaluate(self) -> None:
        """Have the suite played by the weights of now, once it has been by those before."""
        self._tell_evaluation()
        self.learner.export(self.evaluation.weights)
        if self.ranks.first:
            self.evaluation.begin(self.step)

    def _tell_evaluation(self) -> None:
        """Wait for an evaluation that is under way, and tell what came of it."""
        if (found := self.evaluation.result(wait=True)) is not None:
            to_stderr(told_evaluation(found))
            self._sink(self.step, {f"evaluation/{key}": found[key] for key in found if key not in ("suite", "error")})

    def stop(self) -> None:
        """End behind the step in hand, with the state kept."""
        self._stopped = True

    def keep(self, states: StateWriter) -> None:
        """Have the state of now written while the run goes on."""
        learner = self.learner
        states.begin(self.step, learner.model, learner.optimizers, learner.average, self.cursors)

    def batches(self) -> Iterator[tuple[Drawn, ...]]:
        """This rank's batches of each step from here on."""
        return load_batches(self._learned(self.cursors, self.step), self.recipe.workers)

    def held_out_loss(self) -> float:
        """Of the same batches every time."""
        stream = self._stream(self.recipe.held_out, {}, 0)
        steps = islice(iter(stream), self.recipe.held_out_batches)
        return self.learner.measure(drawn.batch for step in steps for drawn in step)

    def _learned(self, cursors: dict[int, Cursor], step: int) -> BatchStream:
        """What is learned from, as the recipe shows it."""
        return replace(self._stream(self.recipe.data, cursors, step), augment=self._augment())

    def _augment(self) -> Augment | None:
        config, vision = self.recipe.augment, self.learner.model.config.vision
        if not config.share:
            return None
        first_ids = Coordinates.of(self.learner.writer.tokenizer).first_ids
        if not first_ids or vision is None or vision.mode != "dynamic":
            raise TrainingError(
                f"{self.recipe.start} writes points as digits or sees tiles; [augment] moves points that are tokens on "
                "whole pictures: leave it out"
            )
        return Augment(config, first_ids, vision.image_token_id)

    def _stream(self, sources: Sequence[DataSource], cursors: dict[int, Cursor], step: int) -> BatchStream:
        recipe, workers = self.recipe, max(1, self.recipe.workers)
        jitter = recipe.coordinate_jitter
        return BatchStream(
            sources,
            self.writer,
            self.packer,
            recipe.seed,
            workers=workers,
            batches=recipe.batches,
            cursors=cursors,
            turn=step % workers,
            rank=self.ranks.rank,
            ranks=self.ranks.size,
            jitter=CoordinateJitter.of(self.learner.writer.tokenizer, jitter) if jitter else None,
            folder=recipe.folder,
            own_format=self.learner.own_format,
        )

    def _check(self, meter: Meter, before: list[dict[int, Cursor]]) -> None:
        """At a bad step, keep its batches, drawn again for it, and end the run with its last state as it is."""
        bad = meter.bad_loss(self.recipe.spike)
        if bad is None:
            return
        step, cursors = self.step - bad.behind, before[-bad.behind]
        drawn = next(iter(self._learned(cursors, step)))
        path = self.out / f"bad-step-{step + 1}.{self.ranks.rank}.pt"
        kept = [
            {"kinds": each.kinds, "token_ids": each.batch.token_ids_T, "rows": each.batch.rows_N}
            | {"targets": each.batch.targets_N, "weights": each.batch.weights_N, "pixels": each.batch.pixels}
            for each in drawn
        ]
        with whole_file(path) as partial:
            torch.save(kept, partial)
        raise TrainingError(
            f"the loss is {bad.loss:.4g} at step {step + 1}; what it was to learn is kept in {path}. "
            "The last state is from before it: begin a new run with a smaller rate, or look at the data"
        )

    def _note(self, progress: Progress) -> None:
        with open(self.out / METRICS, "a", encoding="utf-8") as file:
            file.write(json.dumps(progress.__dict__) + "\n")
        self._sink(progress.step, figures_of(progress))

    def _sink(self, step: int, figures: dict[str, float]) -> None:
        for sink in self.sinks:
            sink.write(step, figures)
