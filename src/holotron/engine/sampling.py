"""From logits to tokens: which one comes next.

Shapes: S sessions of the batch, V vocabulary, D rows that draw, G rows with a grammar, K best tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from holotron.engine.sampling_params import SamplingParams

# Up to here the k best are selected; beyond, sorting the row is faster.
MAX_SELECTED = 1024
# Rows drawn at once: their 64-bit weights are the largest thing sampling allocates.
ROWS_AT_ONCE = 128

OK, BROKEN, EMPTY = 0, 1, 2
ERRORS = {
    BROKEN: "the model's logits have NaN or infinity in them",
    EMPTY: "no token is allowed here: its grammar, bans and logits rule all of them out",
}


class RowState:
    """What sampling knows of one generation: its parameters, its seed and how far it has come.

    The seed is the engine's choice for it; one in the parameters comes first.
    """

    def __init__(
        self,
        params: SamplingParams,
        vocab_size: int,
        seed: int,
        eos_ids: Sequence[int] = (),
        prompt_ids: Sequence[int] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        self.params = params
        self.seed = seed if params.seed is None else params.seed
        self.position = 0
        bias = params.logit_bias or {}
        for id_ in (*bias, *params.stop_token_ids, *eos_ids):
            if id_ >= vocab_size:
                raise ValueError(f"there is no token {id_}: the vocabulary has {vocab_size}")
        self.bias_ids = torch.tensor(list(bias), dtype=torch.long, device=device) if bias else None
        self.bias = torch.tensor(list(bias.values()), dtype=torch.float32, device=device) if bias else None
        ends = sorted({*eos_ids, *params.stop_token_ids})
        self.end_ids = torch.tensor(ends, dtype=torch.long, device=device) if ends and params.min_tokens else None
        # Nothing but the largest logit matters to a plain row.
        self.is_plain = params.is_greedy and not (
            bias or self.end_ids is not None or params.has_penalties or params.grammar or params.logprobs is not None
        )
        self.seen_V: Tensor | None = None
        self.counts_V: Tensor | None = None
        if params.has_penalties:
            self.counts_V = torch.zeros(vocab_size, dtype=torch.float32, device=device)
            self.seen_V = torch.zeros(vocab_size, dtype=torch.bool, device=device)
            self.seen_V[torch.tensor(prompt_ids, dtype=torch.long, device=device)] = True

    def advance(self, token_ids: Sequence[int]) -> None:
        """Counts the tokens that the generation has gained, sampled or forced."""
        self.position += len(token_ids)
        if self.counts_V is not None and self.seen_V is not None:
            ids = torch.tensor(token_ids, dtype=torch.long, device=self.counts_V.device)
            self.seen_V[ids] = True
            self.counts_V.index_add_(0, ids, torch.ones_like(ids, dtype=torch.float32))


class SampledToken(NamedTuple):
    """One row's answer. `logprob` is the model's own; `sampling_logprob` that of the distribution it was drawn from."""

    token_id: int
    sampling_logprob: float
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class SampleResult:
    """One step's answers, still on the device. Rows with an error have the token 0, so that it can index anything."""

    token_ids_S: Tensor
    sampling_logprobs_S: Tensor
    errors_S: Tensor
    logprobs_S: Tensor | None = None
    top_ids_SK: Tensor | None = None
    top_logprobs_SK: Tensor | None = None

    def read(self, rows: Sequence[RowState]) -> list[SampledToken]:
        """The answers on the host: this waits for the device."""
        # 64-bit floats hold all of these exactly, and one copy waits once.
        columns = [self.token_ids_S, self.errors_S, self.sampling_logprobs_S]
        columns += [] if self.logprobs_S is None else [self.logprobs_S]
        token_ids, errors, sampling_logprobs, *rest = torch.stack([column.double() for column in columns]).tolist()
        logprobs = rest[0] if rest else []
        top_ids = self.top_ids_SK.tolist() if self.top_ids_SK is not None else []
        top_logprobs = self.top_logprobs_SK.tolist() if self.top_logprobs_SK is not None else []
        tokens = []
        for index, row in enumerate(rows):
            wanted = row.params.logprobs
            tokens.append(
                SampledToken(
                    int(token_ids[index]),
                    sampling_logprobs[index],
                    logprobs[index] if wanted is not None else None,
                    tuple(zip(top_ids[index], top_logprobs[index], strict=True))[:wanted] if wanted else (),
                    ERRORS.get(errors[index]),
                )
            )
        return tokens


class PlainDraw:
    """The most likely token of each row, on its way to the host while the device goes on."""

    def __init__(self, token_ids_S: Tensor, peaks_S: Tensor) -> None:
        self.token_ids_S = token_ids_S
        self._columns = torch.stack([token_ids_S.double(), peaks_S.double()])  # these hold both exactly
        self._arrived: torch.cuda.Event | None = None
        if token_ids_S.is_cuda:
            self._columns = torch.empty(self._columns.shape, dtype=torch.double, pin_memory=True).copy_(
                self._columns, non_blocking=True
            )
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def read(self) -> list[SampledToken]:
        """The answers on the host: this waits for them, and for nothing that was asked of the device later."""
        if self._arrived is not None:
            self._arrived.synchronize()
        token_ids, peaks = self._columns.tolist()
        return [
            SampledToken(int(token_id), 0.0)
            if math.isfinite(peak)
            else SampledToken(0, 0.0, error=ERRORS[EMPTY if peak == -math.inf else BROKEN])
            for peak, token_id in zip(peaks, token_ids, strict=True)
        ]


@torch.inference_mode()
def sample_plainly(logits_SV: Tensor, banned: Sequence[int] | Tensor = ()) -> PlainDraw:
    """`sample` for rows that are all plain: the most likely token of each, in few operations."""
    if len(banned):
        logits_SV = logits_SV.index_fill(1, torch.as_tensor(banned, device=logits_SV.device), -math.inf)
    peaks_S, token_ids_S = logits_SV.max(dim=-1)
    return PlainDraw(token_ids_S, peaks_S)


@torch.inference_mode()
def sample(
    logits_SV: Tensor, rows: Sequence[RowState], bitmask: Tensor | None = None, banned: Sequence[int] | Tensor = ()
) -> SampleResult:
    """One token for every row. What else is in the batch does not change a row's token.

    `bitmask` holds 32 tokens per int32 and is read only for rows with a grammar. Banned tokens are never chosen, but
    have their part in the model's log-probabilities.
    """
    if logits_SV.dtype != torch.float32 or logits_SV.shape[0] != len(rows):
        raise ValueError(
            f"{len(rows)} rows need float32 logits, not {logits_SV.dtype} of shape {tuple(logits_SV.shape)}"
        )
    peaks_S, token_ids_S = logits_SV.max(dim=-1)  # the first of equals; NaN wins
    errors_S = torch.where(peaks_S.isnan() | (peaks_S == math.inf), BROKEN, OK)
    shaped_SV = _shape(logits_SV, rows, bitmask, banned)
    if shaped_SV is not logits_SV:
        peaks_S, token_ids_S = shaped_SV.max(dim=-1)
    errors_S = errors_S.masked_fill((errors_S == OK) & (peaks_S == -math.inf), EMPTY)
    sampling_logprobs_S = torch.zeros_like(peaks_S)
    drawing = [index for index, row in enumerate(rows) if not row.params.is_greedy]
    for start in range(0, len(drawing), ROWS_AT_ONCE):
        indices = drawing[start : start + ROWS_AT_ONCE]
        index_D = torch.tensor(indices, device=logits_SV.device)
        offsets_DV = shaped_SV[index_D] - peaks_S[index_D, None]
        token_ids_D, logprobs_D = _draw(offsets_DV, [rows[index] for index in indices])
        token_ids_S[index_D] = token_ids_D
        sampling_logprobs_S[index_D] = logprobs_D
    token_ids_S = token_ids_S.masked_fill(errors_S != OK, 0)
    wanted = [row.params.logprobs for row in rows if row.params.logprobs is not None]
    if not wanted:
        return SampleResult(token_ids_S, sampling_logprobs_S, errors_S)
    totals_S1 = logits_SV.logsumexp(dim=-1, keepdim=True)
    logprobs_S = (logits_SV.gather(1, token_ids_S[:, None]) - totals_S1)[:, 0]
    if not max(wanted):
        return SampleResult(token_ids_S, sampling_logprobs_S, errors_S, logprobs_S)
    top_SK, top_ids_SK = logits_SV.topk(min(max(wanted), logits_SV.shape[1]))
    return SampleResult(token_ids_S, sampling_logprobs_S, errors_S, logprobs_S, top_ids_SK, top_SK - totals_S1)


def _shape(
    logits_SV: Tensor, rows: Sequence[RowState], bitmask: Tensor | None, banned: Sequence[int] | Tensor
) -> Tensor:
    """The logits after penalties, biases, bans and grammars; the same tensor where there are none."""
    shaped_SV = logits_SV

    def writable() -> Tensor:
        return logits_SV.clone() if shaped_SV is logits_SV else shaped_SV

    for index, row in enumerate(rows):
        params = row.params
        if row.counts_V is not None and row.seen_V is not None:
            shaped_SV = writable()
            row_V = shaped_SV[index]
            factor_V = torch.where(row_V > 0, 1 / params.repetition_penalty, params.repetition_penalty)
            row_V.copy_(torch.where(row.seen_V, row_V * factor_V, row_V))
            row_V -= params.presence_penalty * (row.counts_V > 0) + params.frequency_penalty * row.counts_V
        if row.bias_ids is not None and row.bias is not None:
            shaped_SV = writable()
            shaped_SV[index, row.bias_ids] += row.bias
        if row.end_ids is not None and row.position < params.min_tokens:
            shaped_SV = writable()
            shaped_SV[index, row.end_ids] = -math.inf
    if len(banned):
        shaped_SV = writable()
        shaped_SV.index_fill_(1, torch.as_tensor(banned, device=logits_SV.device), -math.inf)
    masked = [index for index, row in enumerate(rows) if row.params.grammar is not None]
    if masked:
        if bitmask is None:
            raise ValueError("rows with a grammar need its bitmask")
        shaped_SV = writable()
        all_masked = len(masked) == len(rows)  # as a rule: then no index has to cross to the device, which would wait
        words = bitmask if all_masked else bitmask[torch.tensor(masked, device=bitmask.device)]
        words = words.to(logits_SV.device, non_blocking=True)
        bits = (words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=logits_SV.device)) & 1
        allowed = bits.flatten(1)[:, : logits_SV.shape[1]].bool()
        if all_masked:
            return shaped_SV.masked_fill_(~allowed, -math.inf)
        masked_G = torch.tensor(masked, device=logits_SV.device)
        shaped_SV[masked_G] = shaped_SV[masked_G].masked_fill(~allowed, -math.inf)
    return shaped_SV


def _draw(offsets_DV: Tensor, rows: Sequence[RowState]) -> tuple[Tensor, Tensor]:
    """A token from each row and its log-probability, given logits relative to the row's largest.

    One uniform number per row walks the cumulative distribution: a pass over the row instead of a random number for
    every token. Probabilities are whole numbers here, so that their sums are exact: the order in which a device adds,
    which changes with the size of the batch, cannot move a sample, and what is ruled out weighs exactly nothing.
    """
    device = offsets_DV.device
    settings = [(row.params.temperature, row.params.min_p, row.params.top_p, float(row.params.top_k)) for row in rows]
    settings_D5 = torch.tensor(settings, dtype=torch.float64)
    settings_D5 = torch.cat([settings_D5, _uniforms(rows)[:, None]], dim=1).to(device)
    temperature_D, min_p_D, top_p_D, top_k_D, uniform_D = settings_D5.unbind(1)
    scaled_DV = offsets_DV.div_(temperature_D.float()[:, None])
    scale = 2.0 ** (62 - scaled_DV.shape[1].bit_length())  # the sum of a whole row stays below 2**62
    floor_D = min_p_D.log().float()  # relative to the largest, min-p is a constant: no need to sort
    for selected, width in _selections(rows, scaled_DV.shape[1]):
        index = torch.tensor(selected, device=device)
        picked = scaled_DV if len(selected) == len(rows) else scaled_DV[index]
        best = picked.topk(width).values if width <= MAX_SELECTED else picked.sort(descending=True).values
        floor = _truncate(best, top_k_D[index], top_p_D[index], scale)
        floor_D[index] = torch.maximum(floor_D[index], floor)
    if any(row.params.min_p or row.params.top_k or row.params.top_p < 1 for row in rows):
        scaled_DV.masked_fill_(scaled_DV < floor_D[:, None], -math.inf)
    cumulative_DV = (scaled_DV.exp() * scale).long().cumsum(dim=-1)
    total_D1 = cumulative_DV[:, -1:]
    target_D1 = (uniform_D[:, None] * total_D1.double()).long().minimum(total_D1 - 1)
    # Broken rows hold nonsense, which must still be an index.
    token_ids_D1 = torch.searchsorted(cumulative_DV, target_D1, right=True).clamp_(0, scaled_DV.shape[1] - 1)
    logprobs_D = scaled_DV.gather(1, token_ids_D1)[:, 0] - (total_D1[:, 0].double() / scale).log().float()
    return token_ids_D1[:, 0], logprobs_D


def _selections(rows: Sequence[RowState], vocab_size: int) -> list[tuple[list[int], int]]:
    """Rows that top-k or top-p truncates, in two groups: how many of the largest logits must be known for each."""
    few, all_ = [], []
    for index, row in enumerate(rows):
        if 0 < row.params.top_k <= min(MAX_SELECTED, vocab_size):
            few.append(index)
        elif row.params.top_p < 1 or 0 < row.params.top_k < vocab_size:
            all_.append(index)
    width = max((rows[index].params.top_k for index in few), default=0)
    return [group for group in ((few, width), (all_, max(vocab_size, MAX_SELECTED + 1))) if group[0]]


def _truncate(best_DK: Tensor, top_k_D: Tensor, top_p_D: Tensor, scale: float) -> Tensor:
    """The smallest value to keep. Tokens of equal value stay or go together, so that no tie is broken by chance."""
    rank_K = torch.arange(best_DK.shape[1], device=best_DK.device)
    within_DK = (top_k_D[:, None] == 0) | (rank_K < top_k_D[:, None])
    weights_DK = (best_DK.exp() * scale).long() * within_DK
    before_DK = weights_DK.cumsum(dim=-1) - weights_DK
    mass_D1 = top_p_D[:, None] * weights_DK.sum(dim=-1, keepdim=True).double()
    kept_DK = within_DK & (before_DK.double() < mass_D1)
    last_D1 = (kept_DK.sum(dim=-1, keepdim=True) - 1).clamp_(min=0)
    return best_DK.gather(1, last_D1)[:, 0]


def _uniforms(rows: Sequence[RowState]) -> Tensor:
    """A number in [0, 1) for each row, from its seed and position alone: SplitMix64, entered at any place."""
    seeds = np.array([row.seed % 2**64 for row in rows], dtype=np.uint64)
    positions = np.array([row.position + 1 for row in rows], dtype=np.uint64)
    # Seeds are mixed first: neighbouring ones would otherwise be the same stream, shifted.
    mixed = _mix(_mix(seeds + _GOLDEN) + positions * _GOLDEN)
    return torch.from_numpy((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(values: np.typing.NDArray[np.uint64]) -> np.typing.NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
