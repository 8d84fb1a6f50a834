"""Times of routing and experts at the real shapes of two mixtures, tokens spread evenly over their experts.

Bytes are the weights of the experts that a batch touches, once, and the tokens in and out; operations are those of the
chosen experts alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from holotron.bench.kernels import Case
from holotron.bench.kernels_mamba import PEAK as PEAK
from holotron.ops.plain.experts import Activation
from holotron.ops.triton.experts import TILES, ExpertTile, choose_tile, route, run_experts, sort_by_expert

TOKENS = (1, 30, 100, 256, 512, 2368, 9472)
BF16_BYTES = 2


@dataclass(frozen=True)
class Mixture:
    """The routed experts of one layer."""

    name: str
    experts: int
    per_token: int
    width: int
    inner: int
    gated: bool

    @property
    def expert_size(self) -> int:
        """Weights of one expert."""
        return (3 if self.gated else 2) * self.width * self.inner


MIXTURES = (
    Mixture("nemotron-3-nano", 128, 6, 2688, 1856, gated=False),
    Mixture("qwen3-30b-a3b", 128, 8, 2048, 768, gated=True),
)


def cases(device: torch.device) -> Iterator[Case]:
    for mixture in MIXTURES:
        yield from _cases(mixture, device)
        torch.cuda.empty_cache()


def _cases(mixture: Mixture, device: torch.device) -> Iterator[Case]:
    m = mixture
    up, down = _draw(m.experts, m.inner, m.width, device=device), _draw(m.experts, m.width, m.inner, device=device)
    gate = _draw(m.experts, m.inner, m.width, device=device) if m.gated else None
    activation: Activation = "silu" if m.gated else "relu_squared"
    for tokens in TOKENS:
        x = _draw(tokens, m.width, device=device)
        logits = torch.randn(tokens, m.experts, device=device)
        chosen, weights = route(logits, None, m.per_token)
        touched = len(chosen.unique())
        shape = f"{m.name} {tokens} tokens, {touched} experts"
        moved = BF16_BYTES * (touched * m.expert_size + 2 * tokens * m.width)
        flops = 2.0 * tokens * m.per_token * m.expert_size
        yield Case("route", shape, "", partial(route, logits, None, m.per_token), 4.0 * logits.numel())
        chosen_tile = choose_tile(tokens, m.per_token, m.experts)
        sort = partial(sort_by_expert, chosen, m.experts, chosen_tile.rows)
        yield Case("sort", shape, "", sort, chosen.numel() * chosen.itemsize)
        run = partial(run_experts, x, chosen, weights, up, down, gate, activation=activation)
        for tile in _tiles(chosen_tile):
            yield Case("experts", shape, str(tile), partial(run, tile=tile), moved, flops)


def _tiles(chosen: ExpertTile) -> Iterator[ExpertTile]:
    """The one in use, the others by tokens per expert, and the one in use cut otherwise."""
    yield chosen
    yield from (tile for _, tile in TILES if tile != chosen)
    for stages in (3, 5):
        yield replace(chosen, num_stages=stages)
    for columns, depth in ((32, 128), (64, 64), (128, 64), (128, 128), (256, 64)):
        if (columns, depth) != (chosen.columns, chosen.depth) and columns * depth * chosen.num_stages <= 2**16:
            yield replace(chosen, columns=columns, depth=depth)
    yield replace(chosen, num_warps=12 - chosen.num_warps)  # 8 for 4 and 4 for 8


def _draw(*shape: int, device: torch.device) -> Tensor:
    return torch.empty(*shape, dtype=torch.bfloat16, device=device).normal_(0, 0.02)
