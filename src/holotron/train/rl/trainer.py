"""A run of online RL: play, judge, learn, send the weights, and again. Killed anywhere, the same command goes on."""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from holotron.engine.token_sampler import TokenSampler
from holotron.env.workers import stop_signals
from holotron.episodes.files import write_whole
from holotron.train.batches import Packer, TrainingBatch
from holotron.train.loader import BatchStream, Cursor, load_batches
from holotron.train.meter import TrainingError
from holotron.train.parallel import join
from holotron.train.results import METRICS
from holotron.train.rl.collector import Collected, Collector, Stopped, learns_from
from holotron.train.rl.config import GrpoRecipe
from holotron.train.rl.ledger import Ledger
from holotron.train.rl.played import PlayedReader
from holotron.train.rl.policy_learner import PolicyLearner
from holotron.train.rl.progress import GrpoProgress, Stopwatch, add_updates, progress_of
from holotron.train.rl.reading import PROCESSES, GroupReader
from holotron.train.rl.rollout_batch import (
    RolloutBatch,
    WeighedSequence,
    build_batch,
    bunched,
    nothing,
    pack,
    weigh,
)
from holotron.train.rl.token_masks import TokenMasks
from holotron.train.run_folder import claim_folder
from holotron.train.sequences import SequenceWriter
from holotron.train.sft import WEIGHTS, Interrupted
from holotron.train.state import NAME as STATE
from holotron.train.state import StateWriter, load_state
from holotron.train.suite_evaluation import SuiteEvaluation

if TYPE_CHECKING:
    from holotron.suites.live_play import LivePlay
    from holotron.suites.suite import Suite
    from holotron.train.rl.rollout import Engines, OpenLive

log = logging.getLogger(__name__)
EPISODES = "episodes"  # the store, below the run's folder


class GrpoTrainer:
    """One run of a recipe, in a folder of its own, which holds its episodes, too.

    suite: instead of the recipe's. live: what plays, in place of this machine's browsers.

    Where torchrun started several processes, each has one of these, with a part of all weights that learn, and an
    engine and sessions of its own. All judge the same groups; the folder is one that all see.
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
        self.ranks, self.device = join(torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")))
        self.rollout = Rollout(recipe, out / EPISODES, suite, live)
        self.learner = PolicyLearner(recipe, self.device, self.ranks)
        self.packer = Packer(self.learner.model.config, recipe.batch)
        self.step = 0
        self.ledger = Ledger()
        self.cursors: dict[int, Cursor] = {}
        self.watch = Stopwatch()
        self.evaluation = SuiteEvaluation(out, recipe.eval)
        self._kept = -1  # the step of the last state
        self._spent = self._last = 0.0  # seconds of all iterations and of the last one
        self._stopped = False

    def stop(self) -> None:
        """End as soon as nothing is lost by it."""
        self._stopped = True

    def run(self, on_progress: Callable[[GrpoProgress], None] = lambda _: None) -> Path:
        """Train to the end and leave a checkpoint; its folder.

        A stopped run keeps its state, leaves the checkpoint of that, and raises Interrupted; so does none whose time is
        over.
        """
        self.iterate(on_progress)
        folder = self.learner.export(self.out / WEIGHTS)
        self.ranks.gather(None)  # it is there for all
        if self.step < self.recipe.steps and not self._is_over:
            raise Interrupted(
                f"stopped after iteration {self.step} of {self.recipe.steps}; run it again to go on. "
                f"Its weights are in {folder}"
            )
        return folder

    def iterate(self, on_progress: Callable[[GrpoProgress], None] = lambda _: None) -> None:
        """Train to the end, or until it is stopped, and keep the state."""
        claim_folder(self.out, self.recipe, self.ranks)
        self._go_on()
        with ExitStack() as stack:
            stack.callback(self.evaluation.stop)
            stack.enter_context(stop_signals(lambda *_: self.stop()))
            with self.watch.part("engine"):
                engines = stack.enter_context(self.rollout.engines(self.learner, self.out))
                checksum = self._send(engines)
                engines.warm_up(self.recipe.rollout.sessions)
            play = stack.enter_context(self.rollout.playing(engines.model))
            # As for browsers, one worker is this process itself where there are few cores.
            processes = PROCESSES if self.recipe.rollout.workers > 1 or self.device.type == "cuda" else 0
            reader = self._reader()
            groups = stack.enter_context(GroupReader(reader, self.packer, self.recipe.objective, processes))
            if self.device.type == "cuda":  # learning must not stand in the engine's queue, nor it in ours
                stack.enter_context(torch.cuda.stream(torch.cuda.Stream(self.device)))
            with StateWriter(self.out, self.ranks) as states:
                self._iterate(engines, play, reader, groups, checksum, states, on_progress)
                self._keep(states)
                states.end()
            if self.ranks.first:
                Ledger.tidy(self.out, self.step)
            if self.step == self.recipe.steps:
                self.evaluation.result(wait=True)

    def _reader(self) -> PlayedReader:
        config, tokenizer = self.learner.model.config, self.learner.writer.tokenizer
        masks = TokenMasks(tokenizer, config, TokenSampler(config, tokenizer).banned.tolist())
        return PlayedReader(self.rollout.store, config, self.rollout.policy_format, masks, self.rollout.formats)

    def _iterate(
        self,
        engines: Engines,
        play: LivePlay,
        reader: PlayedReader,
        groups: GroupReader,
        checksum: str,
        states: StateWriter,
        on_progress: Callable[[GrpoProgress], None],
    ) -> None:
        recipe, learner, watch = self.recipe, self.learner, self.watch

        def stopped() -> bool:  # asked while there is nothing to do but wait
            engines.tend()
            return self._stopped

        collector = self.rollout.collector(play, self.ledger, stopped, groups.begin, groups.drop, self.ranks)
        imitated, alone = self._imitated(), not recipe.rollout.staleness
        watch.read()  # what came before is of no iteration
        began, played = monotonic(), self._steps_of(play)
        while self.step < recipe.steps and not any(self.ranks.gather(self._stopped or self._is_over)):
            before = copy.deepcopy(self.ledger)
            try:
                with watch.part("rollout"):
                    found = collector.collect()
            except Stopped:
                self.ledger = before  # what was judged is judged again
                return
            if alone:  # what is held for sessions is room for learning
                engines.sleep()
            with watch.part("reading"):
                weighed, answer_tokens = self._weighed(found, groups)
            with watch.part("logprobs"):  # besides those that the updates make
                parts = [learner.passes(self._packed(groups, *part)) for part in weighed]
            with watch.part("learning"):
                version = self.ledger.version
                batches = (_listening(collector, part[epoch]) for epoch in range(recipe.epochs) for part in parts)
                updates = [learner.update(one, self.step, version, next(imitated, None)) for one in batches]
                if self.device.type == "cuda":
                    torch.cuda.current_stream(self.device).synchronize()
            if alone:
                engines.wake()
            self.ledger.version += bool(updates)
            self.step += 1
            progress = progress_of(recipe, self.step, self.ledger.version, found, answer_tokens)
            progress.even_success = collector.sampler.even_success()
            add_updates(progress, updates)
            if updates:
                with watch.part("weights"):
                    checksum = self._send(engines)
                with watch.part("agreement"):
                    scored = self.ranks.gather(self._scored(found, reader, engines))
                    progress.scored_difference = max((value for value in scored if value is not None), default=None)
            progress.alarm = (progress.difference or 0.0) > recipe.alarm
            self.ledger.count(
                episodes=len(found.attempts), steps=sum(attempt.steps for attempt in found.attempts), lost=found.lost
            )
            now, steps = monotonic(), self._steps_of(play)
            progress.rate, progress.checksum, progress.seconds = learner.rate(self.step - 1), checksum, now - began
            progress.steps_per_second = (steps - played) / max(1e-9, now - began)
            progress.parts = watch.read()
            began, played = now, steps
            # The same for all ranks, which end together.
            self._last = self.ranks.gather(progress.seconds)[0]
            self._spent += self._last
            if self.ranks.first:
                self._tell(progress, on_progress)
            if self.step % recipe.keep_every == 0:
                with watch.part("state"):
                    self._keep(states)
            if self.ranks.gather(self.evaluation.due(self.step, ends=False) and not self.evaluation.running)[0]:
                with watch.part("evaluation"):  # it plays in a process of its own, while this goes on
                    learner.export(self.evaluation.weights)
                    if self.ranks.first:
                        self.evaluation.begin(self.step)

    @property
    def _is_over(self) -> bool:
        """Whether another iteration like the last would take longer than there is time."""
        return bool(self.recipe.seconds) and self._spent + self._last > self.recipe.seconds

    def _steps_of(self, play: LivePlay) -> int:
        return sum(self.ranks.gather(play.counters().steps))

    def _send(self, engines: Engines) -> str:
        """Give the engines the weights; their checksum, which all processes must have alike."""
        checksum = engines.send(self.learner, self.ledger.version)
        if len(set(told := self.ranks.gather(checksum))) > 1:
            raise TrainingError(f"processes hold different weights as version {self.ledger.version}: {told}")
        return checksum

    def _weighed(
        self, found: Collected, groups: GroupReader
    ) -> tuple[list[tuple[list[WeighedSequence], float, int]], float | None]:
        """This rank's part of each update, all ranks' episodes and their most batches; drawn tokens of an answer."""
        updates, tokens, answers = min(self.recipe.updates, len(found.groups)), 0, 0
        parts: list[list[WeighedSequence]] = [[] for _ in range(updates)]
        for place, group in enumerate(found.groups):
            if not learns_from(place, self.recipe, self.ranks):
                continue
            played = groups.read(group)
            states = [[state for each in episode for state in each.states] for episode in played]
            advantages = group.advantages(states, self.recipe.objective)
            for episode, worth, one in zip(played, advantages, group.trajectories, strict=True):
                weighed = weigh(episode, worth, one.replayed, group.version)
                parts[place % updates] += [each for each in weighed if self._fits(each)]
            tokens += sum(len(each.engine) for episode in played for each in episode)
            answers += sum(map(len, states))
        own = [(sum(each.share for each in part), len(bunched(self.packer, part))) for part in parts]
        told = self.ranks.gather((own, tokens, answers))
        tokens, answers = sum(each[1] for each in told), sum(each[2] for each in told)
        of_ranks = zip(*(of_rank for of_rank, _, _ in told), strict=True)
        sizes = [(sum(shares for shares, _ in sizes), max(batches for _, batches in sizes)) for sizes in of_ranks]
        chosen = [(part, episodes, most) for part, (episodes, most) in zip(parts, sizes, strict=True) if episodes]
        return chosen, tokens / answers if answers else None

    def _packed(
        self, groups: GroupReader, part: list[WeighedSequence], episodes: float, most: int
    ) -> Iterator[RolloutBatch]:
        """Batches as they are asked for; where others have more, empty ones: all ranks compute together."""
        own = len(bunched(self.packer, part))
        batches = chain(groups.pack(part, episodes), (self._nothing() for _ in range(most - own)))
        while True:
            with self.watch.part("packing"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _nothing(self) -> RolloutBatch:
        return build_batch(self.packer, [nothing(self.learner.model.config.vocab_size)], 1.0, self.recipe.objective)

    def _scored(self, found: Collected, reader: PlayedReader, engines: Engines) -> float | None:
        """How far engine and trainer are from each other on an episode of this iteration, with the new weights."""
        for group in [group for place, group in enumerate(found.groups) if learns_from(place, self.recipe, self.ranks)]:
            [[played, *_]] = reader.read(group.trajectories[0].episode)
            if self.packer.fits(played.sequence):
                weighed = [WeighedSequence(played, (0.0,) * len(played.states))]
                [batch] = pack(self.packer, weighed, self.recipe.objective)
                return self.learner.difference(played.sequence, batch, engines.score(played.sequence))
        if self.ranks.size > 1:
            self.learner.model_logprobs(self._nothing())  # with those that have one
        return None

    def _fits(self, weighed: WeighedSequence) -> bool:
        sequence = weighed.played.sequence
        if self.packer.fits(sequence):
            return True
        log.warning("an episode of %d tokens does not fit into a batch; make [batch] larger", len(sequence.token_ids))
        return False

    def _imitated(self) -> Iterator[TrainingBatch]:
        """What the imitation term is about, from where the last state stands."""
        recipe, learner = self.recipe, self.learner
        if not recipe.data:
            return iter(())
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
            self.step, self.cursors = load_state(
                self.out, learner.model, learner.optimizers, learner.average, self.ranks
            )
            self.ledger = Ledger.load(self.out, self.step)
            self._kept = self.step
        lines = [line for line in _told(path) if line["step"] <= self.step]
        self.ranks.gather(None)  # all have read it
        if path.exists() and self.ranks.first:
            write_whole(path, "".join(f"{json.dumps(line)}\n" for line in lines).encode(), sync=True)
        taken = [line["seconds"] for line in lines]
        self._spent, self._last = sum(taken), taken[-1] if taken else 0.0

    def _keep(self, states: StateWriter) -> None:
        """Have the state of now written while the run goes on."""
        if self._kept == self.step:
            return
        learner, save = self.learner, self.ledger.saving(self.out, self.step)

        def beside() -> None:
            save()
            with open(self.out / METRICS, "ab") as file:  # lines behind the last state are told again: they can be lost
                os.fsync(file.fileno())

        states.begin(self.step, learner.model, learner.optimizers, learner.average, self.cursors, beside)
        if self.ranks.first:
            Ledger.tidy(self.out, self._kept, self.step)  # the one before is whole, this one not yet
        self._kept = self.step

    def _tell(self, progress: GrpoProgress, on_progress: Callable[[GrpoProgress], None]) -> None:
        progress.evaluation = self.evaluation.result()
        with open(self.out / METRICS, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(progress)) + "\n")
        if progress.alarm:
            log.warning(
                "engine and trainer differ by %.3g in log-probabilities of the same weights, and %.3g is allowed: "
                "what is learned is not what was drawn",
                progress.difference,
                self.recipe.alarm,
            )
        on_progress(progress)


def _listening(collector: Collector, batches: Iterable[RolloutBatch]) -> Iterator[RolloutBatch]:
    """The batches; what was played meanwhile is begun to be read."""
    for batch in batches:
        collector.listen()
        yield batch


def _told(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics; a torn one is none."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found
