"""The decoder: one residual stream, one mixer per layer, as the pattern says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from holotron import ops
from holotron.model.batch import Batch, Memory
from holotron.model.config import ModelConfig
from holotron.model.mixers import AttentionMixer, LayerMemory, MambaMixer, MlpMixer, MoeMixer, RMSNorm


class Layer(nn.Module):
    """Adds mixer(norm(x)) to the residual stream x, which the next layer does together with its own norm."""

    def __init__(self, config: ModelConfig, symbol: str) -> None:
        super().__init__()
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mixer = _mixer(config, symbol)

    def forward(
        self, x_TD: Tensor, delta_TD: Tensor | None, batch: Batch, memory: LayerMemory | None = None
    ) -> tuple[Tensor, Tensor]:
        """The stream with what the layer before adds to it (None before the first), and what this one adds."""
        if delta_TD is not None and self.mixer.takes_fp8:
            x_TD, rows = ops.add_rms_norm_fp8(x_TD, delta_TD, self.norm.weight, self.norm.eps)
            return x_TD, self.mixer(rows, batch, memory)
        x_TD, normed_TD = _add_and_norm(x_TD, delta_TD, self.norm)
        return x_TD, self.mixer(normed_TD, batch, memory)


def _mixer(config: ModelConfig, symbol: str) -> nn.Module:
    if symbol == "M" and config.mamba:
        return MambaMixer(config.mamba, config.hidden_size, config.norm_eps)
    if symbol == "*" and config.attention:
        return AttentionMixer(config.attention, config.hidden_size, config.norm_eps)
    if symbol == "-" and config.mlp:
        return MlpMixer(config.mlp, config.hidden_size)
    if symbol == "E" and config.moe:
        return MoeMixer(config.moe, config.hidden_size)
    raise AssertionError(f"ModelConfig let a {symbol!r} layer pass without its description")


class Decoder(nn.Module):
    """Embeddings, layers, final norm and the head that turns hidden states into logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        # Weights come later; drawing these, without memory, would load PyTorch's compiler: seconds at every start.
        self.embeddings = nn.Embedding.from_pretrained(torch.empty(config.vocab_size, config.hidden_size), freeze=False)
        self.layers = nn.ModuleList(Layer(config, symbol) for symbol in config.pattern)
        self.norm_f = RMSNorm(config.hidden_size, config.norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tied_embeddings:
            self.lm_head.weight = self.embeddings.weight

    def forward(
        self,
        x_TD: Tensor,
        batch: Batch,
        memory: Memory | None = None,
        rows_N: Tensor | None = None,
        deepstack_KTD: Tensor | Sequence[Tensor] | None = None,
    ) -> Tensor:
        """Hidden states of the new tokens, or of those in `rows_N`.

        With a memory, sessions continue from it and are advanced in it. deepstack_KTD is added to the stream after each
        of the first K pairs of layers: what the vision tower saw at several depths.
        """
        seen: dict[str, int] = {}
        delta_TD: Tensor | None = None
        for number, (symbol, layer) in enumerate(zip(self.config.pattern, self.layers, strict=True)):
            index = seen[symbol] = seen.get(symbol, -1) + 1
            x_TD, delta_TD = layer(x_TD, delta_TD, batch, None if memory is None else LayerMemory(memory, index))
            if deepstack_KTD is not None and number % 2 and number // 2 < len(deepstack_KTD):
                delta_TD = delta_TD + deepstack_KTD[number // 2]
        if rows_N is None:
            return _add_and_norm(x_TD, delta_TD, self.norm_f)[1]
        assert delta_TD is not None
        return self.norm_f((x_TD + delta_TD)[rows_N])

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits in float32 at least: sampling and log-probabilities need the precision."""
        out: Tensor = self.lm_head(hidden)
        return out.float() if out.dtype.itemsize < 4 else out


def _add_and_norm(x_TD: Tensor, delta_TD: Tensor | None, norm: RMSNorm) -> tuple[Tensor, Tensor]:
    """The last layer's contribution and the next layer's norm in one pass over the stream."""
    if delta_TD is None:
        return x_TD, norm(x_TD)
    return ops.add_rms_norm(x_TD, delta_TD, norm.weight, norm.eps)
