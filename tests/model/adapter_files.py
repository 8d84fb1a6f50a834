"""LoRA adapters to load: written by the training code with drawn changes, and the merged weights beside them."""

from __future__ import annotations

import copy
from pathlib import Path

import torch

from holotron.model.model import Model
from holotron.train.lora import LoraConfig, add_lora, merged, save_adapter


def write_adapter(
    model: Model, folder: Path, seed: int, targets: tuple[str, ...] = (), rank: int = 3, spread: float = 0.3
) -> Model:
    """An adapter for a model in that folder; returns the model with its changes merged into the weights."""
    config = LoraConfig(rank=rank, alpha=2.0 * rank, targets=targets)
    changed = copy.deepcopy(model)
    add_lora(changed, config, seed)
    generator = torch.Generator().manual_seed(seed)
    changes = {name: p.detach() for name, p in changed.named_parameters() if p.requires_grad}
    for change in changes.values():
        change.copy_(spread * torch.randn(change.shape, generator=generator, dtype=change.dtype))  # the same on a GPU
    save_adapter(model, changes, config, folder)
    whole = copy.deepcopy(model)
    changes = {name: change.to(model.dtype) for name, change in changes.items()}
    with torch.no_grad():
        for name, parameter in whole.named_parameters():
            parameter.copy_(merged(name, parameter, changes, config.scale))
    return whole
