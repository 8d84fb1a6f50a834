"""A run of online RL: play, judge, learn, send the weights, and again. Killed anywhere, the same command goes on."""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from holotron.env.workers import stop_signals
from holotron.train.batches import Packer, TrainingBatch
from holotron.train.loader import BatchStream, Cursor, load_batches
from holotron.train.meter import TrainingError
from holotron.train.results import METRICS
from holotron.train.rl.agreement import scored_difference
from holotron.train.rl.collector import Collected, Stopped
from holotron.train.rl.config import GrpoRecipe
from holotron.train.rl.ledger import Ledger
from holotron.train.rl.played import PlayedReader
from holotron.train.rl.policy_learner import PolicyLearner, UpdateReport
from holotron.train.rl.progress import GrpoProgress, Stopwatch, add_updates, progress_of
from holotron.train.rl.reading import PROCESSES, GroupReader
from holotron.train.rl.rollout_batch import RolloutBatch, WeighedSequence, pack, weigh
from holotron.train.rl.token_masks import TokenMasks
from holotron.train.rl.weight_sync import send_weights
from holotron.train.run_folder import claim_folder
from holotron.train.sequences import SequenceWriter
from holotron.train.sft import WEIGHTS, Interrupted
from holotron.train.state import NAME as STATE
from holotron.train.state import load_state, save_state

if TYPE_CHECKING:
    from holotron.agent.in_process import EngineModel
    from holotron.suites.live_play import LivePlay
    from holotron.suites.suite import Suite
    from holotron.train.rl.rollout import OpenLive

log = logging.getLogger(__name__)
EPISODES = "episodes"  # the store, below the run's folder


class GrpoTrainer:
    """One run of a recipe, in a folder of its own, which holds its episodes, too.

    suite: instead of the recipe's. live: what plays, in place of this machine's browsers.
    """

    def __init__(
        self,
        recipe: GrpoRecipe,
        out: Path,
        device: torch.device | str | None = None,
        suite: Suite[Any] | None = None,
        live: OpenLive | None = None,
    ) -> None:
        from holotron.train.rl.rollout import Rollout  # playing needs pydantic, which the rest of training does without

        self.recipe, self.out = recipe, out
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.rollout = Rollout(recipe, out / EPISODES, suite, live)
        self.learner = PolicyLearner(recipe, self.device)
        self.packer = Packer(self.learner.model.config, recipe.batch)
        self.step = 0
        self.ledger = Ledger()
        self.cursors: dict[int, Cursor] = {}
        self._kept = -1  # the step of the last state
        self._stopped = False

    def stop(self) -> None:
        """End as soon as nothing is lost by it."""
        self._stopped = True

    def run(self, on_progress: Callable[[GrpoProgress], None] = lambda _: None) -> Path:
        """Train to the end and leave a checkpoint; its folder.

        A stopped run keeps its state, leaves the checkpoint of that, and raises Interrupted.
        """
        self.iterate(on_progress)
        folder = self.learner.export(self.out / WEIGHTS)
        if self.step < self.recipe.steps:
            raise Interrupted(
                f"stopped after iteration {self.step} of {self.recipe.steps}; run it again to go on. "
                f"Its weights are in {folder}"
            )
        return folder

    def iterate(self, on_progress: Callable[[GrpoProgress], None] = lambda _: None) -> None:
        """Train to the end, or until it is stopped, and keep the state."""
        if different := claim_folder(self.out, self.recipe):
            raise TrainingError(f"{self.out} holds a run of another recipe ({', '.join(different)} differ)")
        self._go_on()
        with ExitStack() as stack:
            stack.enter_context(stop_signals(lambda *_: self.stop()))
            model = stack.enter_context(self.rollout.engine(self.learner))
            checksum = send_weights(self.learner, model.engine, self.ledger.version)
            if self.recipe.rollout.staleness:  # while a thread learns, graphs are better not recorded
                model.engine.warm_up(self.recipe.rollout.sessions, model.adapter)
            play = stack.enter_context(self.rollout.playing(model))
            # As for browsers, one worker is this process itself.
            processes = PROCESSES if self.recipe.rollout.workers > 1 else 0
            reader = self._reader(model)
            groups = stack.enter_context(GroupReader(reader, self.packer, self.recipe.objective, processes))
            if self.device.type == "cuda":  # learning must not stand in the engine's queue, nor it in ours
                stack.enter_context(torch.cuda.stream(torch.cuda.Stream(self.device)))
            self._iterate(model, play, reader, groups, checksum, on_progress)
            self._keep()

    def _reader(self, model: EngineModel) -> PlayedReader:
        config, banned = self.learner.model.config, model.engine.loop.sampler.banned.tolist()
        masks = TokenMasks(self.learner.writer.tokenizer, config, banned)
        return PlayedReader(self.rollout.store, config, self.rollout.policy_format, masks)

    def _iterate(
        self,
        model: EngineModel,
        play: LivePlay,
        reader: PlayedReader,
        groups: GroupReader,
        checksum: str,
        on_progress: Callable[[GrpoProgress], None],
    ) -> None:
        recipe, learner, watch = self.recipe, self.learner, Stopwatch()
        collector = self.rollout.collector(play, self.ledger, lambda: self._stopped, groups.begin)
        imitated, alone = self._imitated(), not recipe.rollout.staleness
        began, played = monotonic(), play.counters().steps
        while self.step < recipe.steps and not self._stopped:
            before = copy.deepcopy(self.ledger)
            try:
                with watch.part("rollout"):
                    found = collector.collect()
            except Stopped:
                self.ledger = before  # what was judged is judged again
                return
            if alone:  # what is held for sessions is room for learning
                model.engine.sleep()
            with watch.part("reading"):
                parts, answer_tokens = self._batches(found, groups)
            with watch.part("logprobs"):
                parts = [learner.prepared(part) for part in parts]
            with watch.part("learning"):
                updates = self._learn(parts, imitated)
                if self.device.type == "cuda":
                    torch.cuda.current_stream(self.device).synchronize()
            model.engine.wake()
            self.ledger.version += bool(updates)
            self.step += 1
            progress = progress_of(recipe, self.step, self.ledger.version, found, answer_tokens)
            add_updates(progress, updates)
            if updates:
                with watch.part("weights"):
                    checksum = send_weights(learner, model.engine, self.ledger.version)
                with watch.part("agreement"):
                    progress.scored_difference = self._scored(found, reader, model)
            progress.alarm = (progress.difference or 0.0) > recipe.alarm
            self.ledger.count(
                episodes=len(found.attempts), steps=sum(attempt.steps for attempt in found.attempts), lost=found.lost
            )
            now, steps = monotonic(), play.counters().steps
            progress.rate, progress.checksum, progress.seconds = learner.rate(self.step - 1), checksum, now - began
            progress.steps_per_second = (steps - played) / max(1e-9, now - began)
            progress.parts = watch.read()
            began, played = now, steps
            self._tell(progress, on_progress)
            if self.step % recipe.keep_every == 0:
                with watch.part("state"):
                    self._keep()

    def _batches(self, found: Collected, groups: GroupReader) -> tuple[list[list[RolloutBatch]], float | None]:
        """What each update learns from, and how many tokens were drawn for an answer."""
        config, weighed = self.recipe.objective, list[list[WeighedSequence]]()
        tokens = answers = 0
        for group in found.groups:
            played = groups.read(group)
            states = [[state for each in episode for state in each.states] for episode in played]
            advantages = group.advantages(states, config)
            weighed.append(
                [
                    sequence
                    for episode, worth, one in zip(played, advantages, group.trajectories, strict=True)
                    for sequence in weigh(episode, worth, one.replayed, group.version)
                ]
            )
            tokens += sum(len(each.engine) for episode in played for each in episode)
            answers += sum(map(len, states))
        fitting = [[each for each in group if self._fits(each)] for group in weighed]
        updates = min(self.recipe.updates, len(fitting))
        parts = [[each for group in fitting[part::updates] for each in group] for part in range(updates)]
        batches = [groups.pack(part) for part in parts if part]
        return batches, tokens / answers if answers else None

    def _scored(self, found: Collected, reader: PlayedReader, model: EngineModel) -> float | None:
        """How far engine and trainer are from each other on an episode of this iteration, with the new weights."""
        for group in found.groups:
            played = reader.read(group.trajectories[0].episode)[0]
            if self.packer.fits(played.sequence):
                weighed = [WeighedSequence(played, (0.0,) * len(played.states))]
                [batch] = pack(self.packer, weighed, self.recipe.objective)
                return scored_difference(self.learner, model, played.sequence, batch)
        return None

    def _fits(self, weighed: WeighedSequence) -> bool:
        sequence = weighed.played.sequence
        if self.packer.fits(sequence):
            return True
        log.warning("an episode of %d tokens does not fit into a batch; make [batch] larger", len(sequence.token_ids))
        return False

    def _learn(self, parts: list[list[RolloutBatch]], imitated: Iterator[TrainingBatch] | None) -> list[UpdateReport]:
        version = self.ledger.version
        return [
            self.learner.update(part, self.step, version, next(imitated) if imitated is not None else None)
            for part in parts
        ]

    def _imitated(self) -> Iterator[TrainingBatch] | None:
        """What the imitation term is about, from where the last state stands."""
        recipe, learner = self.recipe, self.learner
        if not recipe.data:
            return None
        workers = max(1, recipe.workers)
        stream = BatchStream(
            recipe.data,
            SequenceWriter(learner.writer),
            self.packer,
            recipe.seed,
            workers=workers,
            cursors=dict(self.cursors),
            turn=self.ledger.totals.get("imitated", 0) % workers,
            folder=recipe.folder,
        )

        def batches() -> Iterator[TrainingBatch]:
            for [drawn] in load_batches(stream, recipe.workers):
                self.cursors[drawn.stream] = drawn.cursor
                self.ledger.count(imitated=1)
                yield drawn.batch

        return batches()

    # ---- what outlives this process ----

    def _go_on(self) -> None:
        """From the last state, if there is one. What was told after it will be told again."""
        learner, path = self.learner, self.out / METRICS
        if (self.out / STATE).exists():
            self.step, self.cursors = load_state(self.out, learner.model, learner.optimizers, learner.average)
            self.ledger = Ledger.load(self.out, self.step)
            self._kept = self.step
        if path.exists():
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if _step_of(line) <= self.step]
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def _keep(self) -> None:
        if self._kept == self.step:
            return
        learner = self.learner
        self.ledger.save(self.out, self.step)
        save_state(self.out, self.step, learner.model, learner.optimizers, learner.average, self.cursors)
        Ledger.tidy(self.out, self.step)
        self._kept = self.step

    def _tell(self, progress: GrpoProgress, on_progress: Callable[[GrpoProgress], None]) -> None:
        with open(self.out / METRICS, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(progress)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if progress.alarm:
            log.warning(
                "engine and trainer differ by %.3g in log-probabilities of the same weights, and %.3g is allowed: "
                "what is learned is not what was drawn",
                progress.difference,
                self.recipe.alarm,
            )
        on_progress(progress)


def _step_of(line: str) -> float:
    """The iteration that a line is of; a torn one is of none."""
    try:
        value: dict[str, Any] = json.loads(line)
        return float(value["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
