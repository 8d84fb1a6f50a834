"""Random weights, made directly on the device: for benchmarks, tests and the start of training."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from holotron.model.config import ModelConfig
from holotron.model.fp8 import FP8, place_fp8, quantized, use_fp8, weight_scales
from holotron.model.model import Model
from holotron.model.parameters import parameter_type, place

# Step sizes start between these, spread evenly on a logarithmic scale, as in Mamba-2.
SHORTEST_STEP, LONGEST_STEP = 1e-3, 1e-1


def random_model(
    config: ModelConfig, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0
) -> Model:
    """A model of that shape with random weights; the same seed on the same kind of device gives the same ones.

    In fp8 the layers' weights are rounded one by one; what stays as it is has bfloat16.
    """
    with torch.device("meta"):
        model = Model(config)
    if fp8 := dtype == FP8:
        use_fp8(model)
    packed = weight_scales(model)
    for name, tensor in random_weights(model, device, torch.bfloat16 if fp8 else dtype, seed):
        if name in packed:
            place_fp8(model, name, *quantized(tensor))
        else:
            place(model, name, tensor)
    return model.eval()


def random_weights(
    model: Model, device: torch.device | str, dtype: torch.dtype, seed: int
) -> Iterator[tuple[str, Tensor]]:
    """The weights of such a model, one after another."""
    generator = torch.Generator(device).manual_seed(seed)
    for name, parameter in list(model.named_parameters()):
        tensor = torch.empty(parameter.shape, device=device, dtype=parameter_type(name, dtype))
        _draw(name, tensor, model.config, generator)
        yield name, tensor


def _draw(name: str, tensor: Tensor, config: ModelConfig, generator: torch.Generator) -> None:
    kind, leaf = name.split(".")[-2], name.split(".")[-1]
    if leaf == "A_log":
        tensor.uniform_(1, 16, generator=generator).log_()
    elif leaf == "dt_bias":
        step = torch.empty_like(tensor).uniform_(math.log(SHORTEST_STEP), math.log(LONGEST_STEP), generator=generator)
        step = step.exp()
        tensor.copy_(step + torch.log(-torch.expm1(-step)))  # the inverse of softplus
    elif leaf == "D" or (leaf == "weight" and "norm" in kind):
        tensor.fill_(1)
    elif leaf in ("bias", "e_score_correction_bias"):
        tensor.zero_()
    elif kind == "conv1d":
        bound = tensor.shape[-1] ** -0.5
        tensor.uniform_(-bound, bound, generator=generator)
    else:
        std = 0.02
        # What is added to the residual stream starts smaller the more layers add to it.
        if leaf == "down_proj" or kind in ("out_proj", "o_proj", "down_proj", "proj", "fc2"):
            depth = config.vision.depth if name.startswith("vision.") and config.vision else config.layers
            std /= math.sqrt(2 * depth)
        tensor.normal_(0, std, generator=generator)
