"""The types that parameters are kept in, and giving them their storage: models are described first and filled later."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Small in memory, large in effect: decay rates and routing corrections stay in float32 beside 16-bit weights.
WIDE_PARAMETERS = ("A_log", "D", "dt_bias", "e_score_correction_bias")


def parameter_type(name: str, dtype: torch.dtype) -> torch.dtype:
    """The type a parameter is kept in when the model is in `dtype`."""
    wide = name.rpartition(".")[2] in WIDE_PARAMETERS
    return torch.promote_types(dtype, torch.float32) if wide else dtype


def place(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Give a parameter its storage; parameters that share one (tied embeddings) keep sharing it."""
    old = model.get_parameter(name)
    new = nn.Parameter(tensor, requires_grad=old.requires_grad)
    for module in model.modules():
        for key, parameter in list(module._parameters.items()):
            if parameter is old:
                module._parameters[key] = new
