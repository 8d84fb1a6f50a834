"""What is told while training."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from holotron.ops import FixedPacking
from holotron.train.flops import Passes, peak_flops, training_flops
from holotron.train.learner import Learner
from holotron.train.loader import Drawn


class TrainingError(RuntimeError):
    """A run that cannot go on as asked for."""


@dataclass
class Progress:
    """What is told while training, and written to metrics.jsonl.

    ocr_loss: of what is written where. memory: the most that the device held, in GiB. loss_by_suite: of what is said,
    empty where a step is a recorded CUDA graph. evaluation: of a suite that was played, with the step of its weights.
    """

    step: int
    steps: int
    loss: float
    rate: float
    gradient: float
    samples_per_second: float
    tokens_per_second: float
    images_per_second: float
    share_of_peak: float | None
    filled: float
    waited: float
    seconds: float
    kinds: dict[str, float] = field(default_factory=dict)
    loss_by_suite: dict[str, float] = field(default_factory=dict)
    ocr_loss: float | None = None
    held_out_loss: float | None = None
    memory: float | None = None
    evaluation: dict[str, Any] | None = None


@dataclass(frozen=True)
class BadLoss:
    """A step whose loss no run can go on from. behind: how many steps ago it was."""

    loss: float
    behind: int


class Meter:
    """Sums between two lines of the log, over all ranks. Reads a number off the device only when one is told."""

    def __init__(self, learner: Learner) -> None:
        self._learner, self._passes = learner, Passes.of(learner.model)
        self._mean: float | None = None  # of the losses that were told
        self._reset()

    def _reset(self) -> None:
        self._since, self._waited = time.monotonic(), 0.0
        self._measured: list[tuple[Tensor, ...]] = []  # the losses of what is said and written, and the gradient
        self._work: list[tuple[float, ...]] = []  # examples, tokens, images, and arithmetic of a batch
        self._kinds: Counter[str] = Counter()
        self._tokens: list[tuple[Drawn, Tensor]] = []  # batches, with the loss of each token that they learn

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time spent inside is time without a batch."""
        start = time.monotonic()
        yield
        self._waited += time.monotonic() - start

    def count(self, drawn: Sequence[Drawn], losses: tuple[Tensor, Tensor], gradient: Tensor) -> None:
        self._measured.append((*losses, gradient))
        self._tokens += zip(drawn, self._learner.token_losses, strict=False)
        for batch in (each.batch for each in drawn):
            arithmetic = training_flops(self._learner.model.config, batch, self._passes)
            self._work.append((batch.examples, batch.used_tokens, sum(map(len, batch.pixels)), arithmetic))
        self._kinds.update(kind.split("/")[0] for each in drawn for kind in each.kinds)

    def bad_loss(self, spike: float) -> BadLoss | None:
        """The first step since the last line whose loss is no number, or `spike` times the mean before that line."""
        losses = [float(said) for said, *_ in self._measured]
        limit = spike * self._mean if spike and self._mean else math.inf
        for index, loss in enumerate(losses):
            if not math.isfinite(loss) or loss > limit:
                return BadLoss(loss, len(losses) - index)
        return None

    def progress(self, step: int, began: float, held_out_loss: float | None = None) -> Progress:
        """What was done since the last time; step: how many steps are behind."""
        learner, recipe, ranks = self._learner, self._learner.recipe, self._learner.ranks
        loss, written, gradient = (float(torch.stack(each).mean()) for each in zip(*self._measured, strict=True))
        self._mean = loss if self._mean is None else 0.5 * (self._mean + loss)
        seconds = max(1e-9, time.monotonic() - self._since)
        own = *map(sum, zip(*self._work, strict=True)), len(self._work), self._waited
        told = ranks.gather((own, self._kinds, self._by_suite()))
        examples, tokens, images, flops, batches, waited = map(sum, zip(*(sums for sums, *_ in told), strict=True))
        kinds = sum((counts for _, counts, _ in told), Counter[str]())
        by_suite: dict[str, list[float]] = {}
        for suite, sums in (pair for *_, suites in told for pair in suites.items()):
            by_suite[suite] = [one + other for one, other in zip(by_suite.get(suite, (0.0, 0.0)), sums, strict=True)]
        peak = peak_flops(learner.device)
        progress = Progress(
            step=step,
            steps=recipe.steps,
            loss=loss,
            rate=learner.rate(step),
            gradient=gradient,
            samples_per_second=examples / seconds,
            tokens_per_second=tokens / seconds,
            images_per_second=images / seconds,
            share_of_peak=None if peak is None else flops / seconds / (peak * ranks.size),
            filled=tokens / (batches * recipe.batch.tokens),
            waited=waited / (seconds * ranks.size),
            seconds=time.monotonic() - began,
            kinds={kind: count / kinds.total() for kind, count in sorted(kinds.items())},
            loss_by_suite={suite: total / number for suite, (total, number) in sorted(by_suite.items())},
            ocr_loss=written if recipe.ocr_loss else None,
            held_out_loss=held_out_loss,
            memory=torch.cuda.max_memory_allocated(learner.device) / 2**30 if learner.device.type == "cuda" else None,
        )
        self._reset()
        return progress

    def _by_suite(self) -> dict[str, tuple[float, float]]:
        """The sum of losses, and how many tokens they are of, by the suite that each example is from."""
        sums: dict[str, tuple[float, float]] = {}
        for drawn, losses_N in self._tokens:
            batch, suites = drawn.batch, [suite_of(kind) for kind in drawn.kinds]
            assert isinstance(batch.text.packing, FixedPacking)
            # Packed one after another, in the order of their kinds.
            bounds = batch.text.packing.bounds_S[: len(suites) + 1].tolist()
            learned_N = batch.weights_N.numpy() > 0
            rows_N, values_N = batch.rows_N.numpy()[learned_N], losses_N.float().cpu().numpy()[learned_N]
            for suite, start, end in zip(suites, bounds[:-1], bounds[1:], strict=True):
                mine = values_N[(rows_N >= start) & (rows_N < end)]
                total, number = sums.get(suite, (0.0, 0.0))
                sums[suite] = total + float(mine.sum()), number + len(mine)
        return {suite: pair for suite, pair in sums.items() if pair[1]}


def told_evaluation(found: Mapping[str, Any]) -> str:
    """What came of an evaluation, in words."""
    what = f"{found['suite']} with the weights of step {found['step']}"
    if "error" in found:
        return f"{what}: {found['error']}"
    return f"{what}: {100 * found['success_rate']:.1f}% of {found['episodes']} episodes solved"


def suite_of(kind: str) -> str:
    """The suite of an example: what is corrected there is of it, too."""
    first, _, rest = kind.partition("/")
    return (rest.partition("/")[0] or first) if first == "dagger" else first
