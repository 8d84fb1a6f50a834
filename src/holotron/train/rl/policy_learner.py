"""A model that learns from what it drew: log-probabilities over the forward pass of all training, and its updates.

Shapes: N learned tokens, D hidden size, V vocabulary, W words of 32 tokens each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import tee

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from holotron.train.batches import TrainingBatch
from holotron.train.forward import compiled
from holotron.train.learner import Learner
from holotron.train.loss import MOST_LOGITS
from holotron.train.optimizer import trained
from holotron.train.parallel import Ranks, local
from holotron.train.rl.config import GrpoRecipe
from holotron.train.rl.policy_loss import DrawnTokens, policy_loss
from holotron.train.rl.rollout_batch import NO_VERSION, RolloutBatch
from holotron.train.rl.token_masks import unpacked
from holotron.train.sequences import Sequence

ROUNDING = 1e-5  # of log-probabilities in float32
Measured = tuple[Tensor, Tensor]  # log-probability and entropy of each token
Measure = Callable[[Tensor, Tensor, Tensor, float], Measured]


@dataclass
class TokenSums:
    """Sums over drawn tokens, on the device until they are read. fresh: those that the present weights drew."""

    values: dict[str, Tensor] = field(default_factory=dict)

    def add(self, **values: Tensor) -> None:
        for name, value in values.items():
            self.values[name] = self.values.get(name, torch.zeros_like(value)) + value

    def over(self, ranks: Ranks) -> TokenSums:
        """Those of all ranks."""
        told = ranks.gather({name: float(value) for name, value in self.values.items()})
        return TokenSums({name: torch.tensor(sum(values[name] for values in told)) for name in self.values})

    def means(self) -> dict[str, float | None]:
        """Each mean over the tokens it is of; None over none."""
        values = torch.stack([value.double() for value in self.values.values()]).tolist()  # waits for the device once
        sums = dict(zip(self.values, values, strict=True))
        counts = {name: sums.pop(name, 0.0) for name in ("tokens", "fresh_tokens")}

        def mean(name: str) -> float | None:
            count = counts["fresh_tokens" if name == "logprob_difference" else "tokens"]
            return sums[name] / count if count else None

        return {name: mean(name) for name in sums} | counts


@dataclass(frozen=True)
class UpdateReport:
    """What is told of a step of the optimiser; gradient: its norm. Read off the device when it is told."""

    sums: TokenSums
    loss: Tensor
    gradient: Tensor
    imitation: Tensor | None


class PolicyLearner(Learner):
    """Learns from rollouts. It holds the weights it began with, where the divergence from them counts.

    Of several ranks each has batches of its own, as many as the others; gradients are of their sum.
    """

    recipe: GrpoRecipe

    def __init__(self, recipe: GrpoRecipe, device: torch.device, ranks: Ranks = Ranks()) -> None:
        super().__init__(recipe, device, ranks)
        self._measure = compiled(logprobs_of_logits) if recipe.compile else logprobs_of_logits
        parameters = trained(self.model).items() if recipe.objective.kl else ()
        self._beginning = {name: parameter.detach().clone() for name, parameter in parameters}

    def logprobs(self, batch: RolloutBatch) -> Measured:
        """Of the tokens that were drawn, under the distribution that they were drawn from, and its entropy."""
        return self.run(self._logprobs, batch, self.recipe.rollout.temperature)

    def _logprobs(self, batch: RolloutBatch, temperature: float) -> Measured:
        head = self.model.decoder.lm_head
        with self.precision():
            hidden_ND, _ = self.hidden(batch.batch, self.see(batch.batch))
        return logprobs_of_hidden(head, hidden_ND, batch.batch.targets_N, batch.allowed_NW, temperature, self._measure)

    @torch.no_grad()
    def model_logprobs(self, batch: RolloutBatch) -> Tensor:
        """Under the model alone: whatever could be drawn, at temperature 1."""
        anything = replace(batch, allowed_NW=torch.full_like(batch.allowed_NW, -1)).to(self.device)
        with torch.compiler.set_stance("force_eager"):  # for one episode an iteration, nothing is worth compiling
            found, _ = self.run(self._logprobs, anything, 1.0)
        self.let_go()
        return found

    def difference(self, sequence: Sequence, batch: RolloutBatch, scored: list[float] | None) -> float | None:
        """How far the model is from what an engine says anew of a sequence's tokens: the mean over those learned."""
        own_N = self.model_logprobs(batch)  # with other ranks, whatever the engine says
        if scored is None:
            return None
        engine_N = torch.tensor(scored)[torch.from_numpy(sequence.learn)]
        return float((own_N[: len(engine_N)].cpu() - engine_N).abs().mean())

    def passes(self, batches: Iterable[RolloutBatch]) -> list[Iterable[RolloutBatch]]:
        """The batches once for each epoch, with log-probabilities that stay while weights change: those before the
        iteration, and those at the beginning of the run.

        The former are what the first pass computes itself, unless other updates come before it. Where no pass is
        needed for them, batches are taken as they come.
        """
        config, found = self.recipe.objective, self._pinned(batches)
        if config.importance_cap and self.recipe.updates > 1:
            found = [replace(batch, measured=True) for batch in self._measured(found, "old_N")]
        if config.kl:
            with self.at_the_beginning():
                found = list(self._measured(found, "reference_N"))
        first, *others = tee(found, self.recipe.epochs)
        return [first, *((replace(batch, measured=True) for batch in other) for other in others)]

    def _pinned(self, batches: Iterable[RolloutBatch]) -> Iterable[RolloutBatch]:
        """From other memory a GPU would copy only when it is done with all that came before."""
        return (batch.pin() for batch in batches) if self.device.type == "cuda" else batches

    def _measured(self, batches: Iterable[RolloutBatch], name: str) -> Iterator[RolloutBatch]:
        """With the log-probabilities of now under a name; the device is not waited for."""
        for batch in batches:
            with torch.no_grad():
                found_N, _ = self.logprobs(batch.to(self.device))
            self.let_go()
            getattr(batch.drawn, name).copy_(found_N, non_blocking=True)
            yield batch

    @contextmanager
    def at_the_beginning(self) -> Iterator[None]:
        """Inside, the model has the weights it began with. Low-rank changes were none then: it is the base model."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        parameters = trained(self.model)
        for name, kept in self._beginning.items():
            now = local(parameters[name]).clone()
            local(parameters[name]).copy_(local(kept))
            local(kept).copy_(now)

    def update(
        self, batches: Iterable[RolloutBatch], step: int, version: int, imitated: TrainingBatch | None = None
    ) -> UpdateReport:
        """One step of the optimiser, over the batches of all ranks.

        version: of the weights before the iteration, to know which tokens they drew. imitated: the same for all ranks.
        """
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        sums, total = TokenSums(), torch.zeros((), device=self.device)
        for batch in batches:
            total += self._policy_gradient(batch, sums, version)
        imitation: Tensor | None = None
        if imitated is not None:
            imitation, *_ = self.objective(imitated.to(self.device))
            (self.recipe.objective.imitation * imitation).backward()
            imitation = imitation.detach()
        if self.ranks.size > 1:
            total, sums = self.ranks.sum(total), sums.over(self.ranks)
        return UpdateReport(sums, total, self.apply_gradients(step), imitation)

    def _policy_gradient(self, held: RolloutBatch, sums: TokenSums, version: int) -> Tensor:
        config, batch = self.recipe.objective, held.to(self.device)
        drawn = batch.drawn
        new_N, entropy_N = self.logprobs(batch)
        if config.importance_cap and not held.measured:
            drawn = replace(drawn, old_N=new_N.detach())
            held.drawn.old_N.copy_(drawn.old_N, non_blocking=True)  # for the passes after this one
        found = policy_loss(new_N, agreed(drawn, batch.version_N) if config.importance_cap else drawn, config)
        loss = (found.loss_N * drawn.weight_N).sum()
        (loss * self.ranks.size).backward()  # gradients are averaged over the ranks
        is_token_N = drawn.weight_N > 0
        fresh_N = is_token_N & (batch.version_N == version)
        before_N = drawn.old_N if config.importance_cap else new_N.detach()
        difference_N = (before_N - drawn.engine_N).abs()
        sums.add(
            tokens=is_token_N.sum(),
            fresh_tokens=fresh_N.sum(),
            logprob_difference=(difference_N * fresh_N).sum(),
            entropy=(entropy_N * is_token_N).sum(),
            ratio=(found.ratio_N * is_token_N).sum(),
            clipped=(found.clipped_N & is_token_N).sum(),
            importance=(found.importance_N * is_token_N).sum(),
            kl=(found.kl_N * is_token_N).sum(),
        )
        return loss.detach()


def agreed(drawn: DrawnTokens, version_N: Tensor) -> DrawnTokens:
    """With the trainer's log-probabilities in place of the engine's where both are the same but for rounding.

    The engine's last bits depend on which sessions shared a batch. Without them a synchronous run can be repeated. Nor
    is a replayed success weighted: it is shown because the policy would hardly draw it now.
    """
    same_N = ((drawn.old_N - drawn.engine_N).abs() < ROUNDING) | (version_N == NO_VERSION)
    return replace(drawn, engine_N=torch.where(same_N, drawn.old_N, drawn.engine_N))


def logprobs_of_hidden(
    head: nn.Linear, hidden_ND: Tensor, targets_N: Tensor, allowed_NW: Tensor, temperature: float, measure: Measure
) -> Measured:
    """From what the head is given; a large vocabulary's logits are made in parts, and again for the gradient."""
    rows = max(1, MOST_LOGITS // head.out_features)

    def part(hidden_ND: Tensor, targets_N: Tensor, allowed_NW: Tensor) -> Measured:
        # In the type of the weights: in 16 bits, logits would be rounded more than probabilities may differ.
        with torch.autocast(hidden_ND.device.type, enabled=False):
            logits_NV = head(hidden_ND.to(head.weight.dtype))
        return measure(logits_NV, targets_N, allowed_NW, temperature)

    if len(hidden_ND) <= rows:
        return part(hidden_ND, targets_N, allowed_NW)
    parts = [
        checkpoint(part, *pieces, use_reentrant=False, preserve_rng_state=False)
        for pieces in zip(hidden_ND.split(rows), targets_N.split(rows), allowed_NW.split(rows), strict=True)
    ]
    logprobs, entropies = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


def logprobs_of_logits(logits_NV: Tensor, targets_N: Tensor, allowed_NW: Tensor, temperature: float) -> Measured:
    """Log-probabilities of targets among what was allowed, at a temperature; entropies, without gradients."""
    wide_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32)) / temperature
    allowed_NV = unpacked(allowed_NW, logits_NV.shape[1])
    log_NV = torch.log_softmax(wide_NV.masked_fill(~allowed_NV, float("-inf")), dim=-1)
    fixed_NV = log_NV.detach()
    entropy_N = -(fixed_NV.exp() * fixed_NV.masked_fill(~allowed_NV, 0.0)).sum(-1)
    return log_NV.gather(1, targets_N[:, None]).squeeze(1), entropy_N
