"""How much arithmetic a batch is, and how much the device could do at most."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import torch

from holotron.model.config import ModelConfig, QwenVisionConfig, VisionConfig
from holotron.model.model import Model
from holotron.ops import FixedPacking
from holotron.plan.gpus import known_gpu
from holotron.train.batches import TrainingBatch
from holotron.train.forward import PARTLY, Recompute, layer_choices


def peak_flops(device: torch.device) -> float | None:
    """Dense 16-bit matrix products a second, as the device's maker gives them; None where it is not known."""
    gpu = known_gpu(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return None if gpu is None else gpu.bf16_flops


@dataclass(frozen=True)
class Passes:
    """How often each part's products are computed: forward, for the gradient of its input, for that of its weights.

    3 where everything learns, 2 where gradients only pass through, 1 where nothing learns in it or before it.
    """

    vision: float = 3.0
    projector: float = 3.0
    decoder: float = 3.0

    @classmethod
    def of(cls, model: Model) -> Self:
        """By what learns. Low-rank changes themselves are not counted: they are less than a hundredth."""
        passes, passed = [], False
        for part in (field.name for field in fields(cls)):
            named = {name: p for name, p in model.named_parameters() if name.startswith(f"{part}.")}
            weights = [p for name, p in named.items() if p.dim() > 1 and "lora_" not in name]
            learned = sum(p.numel() for p in weights if p.requires_grad)
            passed = passed or any(p.requires_grad for p in named.values())
            passes.append(1.0 + passed + learned / max(1, sum(p.numel() for p in weights)))
        return cls(*passes)


def training_flops(config: ModelConfig, batch: TrainingBatch, passes: Passes = Passes()) -> float:
    """Useful multiplications and additions of the matrix products and of attention; what is computed again is not.

    Two for each weight, each token or patch that goes through it and each pass; four for each pair of positions, head
    and channel that attend to each other, and eight for their gradient. Padding is not counted, nor is the scan.
    """
    head = config.hidden_size * config.vocab_size
    decoder = batch.used_tokens * (config.active_parameters - head) + float(batch.weights_N.sum()) * head
    total = 2.0 * passes.decoder * decoder
    if a := config.attention:
        width = config.count("*") * a.heads * a.head_dim
        total += _per_pair(passes.decoder) * _causal_pairs(batch) * width
    return total + (_vision_flops(config, config.vision, batch, passes) if config.vision else 0.0)


def _per_pair(passes: float) -> float:
    return 12.0 if passes >= 2 else 4.0


def _causal_pairs(batch: TrainingBatch) -> float:
    """Tokens that see each other, in the sequences of a batch."""
    assert isinstance(batch.text.packing, FixedPacking)
    bounds = batch.text.packing.bounds_S
    lengths = bounds.diff()[bounds[1:] <= batch.used_tokens].double()
    return float((lengths * (lengths + 1)).sum() / 2)


def _vision_flops(config: ModelConfig, tower: VisionConfig, batch: TrainingBatch, passes: Passes) -> float:
    block = 4 * tower.width**2 + (3 if tower.gated else 2) * tower.width * tower.mlp_size
    seen = batch.used_patches * (tower.depth * block + tower.patch_values * tower.width)
    projector = tower.projector_parameters(config.hidden_size)
    products = passes.vision * seen + passes.projector * batch.used_patches / 4 * projector
    return 2.0 * products + tower_attention_flops(tower, batch, passes)


def tower_attention_flops(tower: VisionConfig, batch: TrainingBatch, passes: Passes) -> float:
    """Those of patches that attend to each other."""
    windowed = tower.depth - len(tower.full_attention) if isinstance(tower, QwenVisionConfig) and tower.window else 0
    pairs = 0
    for pixels, (rows, columns) in zip(batch.pixels, batch.grids, strict=True):
        whole = rows * columns
        nearby = min(whole, tower.window**2) if tower.window else whole
        pairs += len(pixels) * whole * ((tower.depth - windowed) * whole + windowed * nearby)
    return _per_pair(passes.vision) * pairs * tower.width


def recomputed_flops(config: ModelConfig, batch: TrainingBatch, passes: Passes, recompute: Recompute) -> float:
    """What is computed again of products; a layer's last one is not needed again, and attention's results are kept."""
    mamba, attention, mlp = config.mamba, config.attention, config.mlp
    last = {
        "M": mamba.inner_size if mamba else 0,
        "*": attention.heads * attention.head_dim if attention else 0,
        "-": mlp.size if mlp else 0,
    }
    total = 0.0
    for symbol, choice in zip(config.pattern, layer_choices(config.pattern, recompute), strict=True):
        if choice == "full" and symbol in last:
            first = config.layer_parameters[symbol] - config.hidden_size * last[symbol]
            total += 2.0 * batch.used_tokens * first
    if recompute in (*PARTLY, "full") and (tower := config.vision) and passes.vision >= 2:
        block = 4 * tower.width**2 + (2 if tower.gated else 1) * tower.width * tower.mlp_size
        total += 2.0 * batch.used_patches * tower.depth * block
    return total
