"""How much arithmetic a batch is, and how much the device could do at most."""

from __future__ import annotations

import torch

from holotron.model.config import ModelConfig, QwenVisionConfig, VisionConfig
from holotron.train.batches import TrainingBatch

# Dense 16-bit matrix products a second, as the makers give them.
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "B200": 2250e12}


def peak_flops(device: torch.device) -> float | None:
    """The device's peak, or None where it is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAKS.items() if part in name), None)


def training_flops(config: ModelConfig, batch: TrainingBatch) -> float:
    """Useful multiplications and additions, forward and backward, of the matrix products and of attention.

    Six for each weight and each token or patch that goes through it, and twelve for each pair of positions, head and
    channel that attend to each other; padding is not counted.
    """
    head = config.hidden_size * config.vocab_size
    decoder = batch.used_tokens * (config.active_parameters - head) + float(batch.weights_N.sum()) * head
    return 6.0 * decoder + (_vision_flops(config, config.vision, batch) if config.vision else 0.0)


def _vision_flops(config: ModelConfig, tower: VisionConfig, batch: TrainingBatch) -> float:
    block = 4 * tower.width**2 + (3 if tower.gated else 2) * tower.width * tower.mlp_size
    seen = batch.used_patches * (tower.depth * block + tower.patch_values * tower.width)
    projector = tower.projector_parameters(config.hidden_size)
    windowed = tower.depth - len(tower.full_attention) if isinstance(tower, QwenVisionConfig) and tower.window else 0
    pairs = 0
    for pixels, (rows, columns) in zip(batch.pixels, batch.grids, strict=True):
        whole = rows * columns
        nearby = min(whole, tower.window**2) if tower.window else whole
        pairs += len(pixels) * whole * ((tower.depth - windowed) * whole + windowed * nearby)
    return 6.0 * (seen + batch.used_patches / 4 * projector) + 12 * pairs * tower.width
