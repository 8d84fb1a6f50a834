"""The decoder's linear layers in 8 bits (e4m3): half the memory of 16, and faster where the device multiplies them.

What is small in memory or large in effect stays as it is: embeddings, head, norms, convolution, decay rates, routers,
routed experts and the vision tower.
"""

from __future__ import annotations

from collections.abc import Container

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holotron import ops
from holotron.model.errors import ModelError
from holotron.ops import QuantizedRows

FP8 = torch.float8_e4m3fn
MULTIPLE = 16  # of inputs and outputs: what matrix instructions take


class Fp8Linear(nn.Linear):
    """W x + b with W in e4m3 and a scale for each of its rows; b is that of the layer it replaces."""

    weight_scale: Tensor

    def __init__(self, base: nn.Linear) -> None:
        nn.Module.__init__(self)  # not Linear's: nothing is to be drawn that is thrown away again
        self.in_features, self.out_features, self.bias = base.in_features, base.out_features, base.bias
        self.weight = nn.Parameter(torch.empty_like(base.weight, dtype=FP8), requires_grad=False)
        # A buffer: no weight of its own, but a part of the one that it belongs to.
        self.register_buffer("weight_scale", torch.empty(len(base.weight), device=base.weight.device))

    def forward(self, x_TI: Tensor | QuantizedRows) -> Tensor:
        return linear(x_TI, self.weight, self.bias, self.weight_scale)


def linear(x_TI: Tensor | QuantizedRows, weight_OI: Tensor, bias_O: Tensor | None, scale_O: Tensor | None) -> Tensor:
    """W x + b, in 8 bits where the weights have scales."""
    if scale_O is None:
        assert isinstance(x_TI, Tensor)
        return F.linear(x_TI.to(weight_OI.dtype), weight_OI, bias_O)
    rows = ops.quantize_rows(x_TI) if isinstance(x_TI, Tensor) else x_TI
    return ops.fp8_linear(*rows, weight_OI, scale_O, bias_O)


def is_fp8(*layers: nn.Module | None) -> bool:
    """Whether layers take quantized rows; one with adapters does not, which needs the others, too."""
    return all(isinstance(layer, Fp8Linear) for layer in layers if layer is not None)


def quantizable(model: nn.Module) -> dict[str, nn.Linear]:
    """The layers that can compute in 8 bits, by the name of their weight."""
    return {
        f"{name}.weight": module
        for name, module in model.named_modules()
        if type(module) is nn.Linear
        and name.startswith("decoder.layers.")
        and module.in_features % MULTIPLE == 0
        and module.out_features % MULTIPLE == 0
    }


def use_fp8(model: nn.Module, only: Container[str] | None = None) -> None:
    """Have the decoder's linear layers compute in 8 bits; `only` those whose weights have these names.

    Weights that are there are rounded; those of a model without memory are placed later (`place_fp8`).
    """
    for name, base in quantizable(model).items():
        if only is not None and name not in only:
            continue
        model.set_submodule(name.removesuffix(".weight"), Fp8Linear(base))
        if not base.weight.is_meta:
            place_fp8(model, name, *quantized(base.weight))


@torch.no_grad()
def quantized(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """A weight in e4m3, and the scales of its rows."""
    values_OI, scale_O, _ = ops.quantize_rows(weight_OI)
    return values_OI, scale_O


def place_fp8(model: nn.Module, name: str, values_OI: Tensor, scale_O: Tensor) -> None:
    """Give an 8-bit layer the storage of its weight, which has that name, and of the scales."""
    layer = model.get_submodule(name.removesuffix(".weight"))
    assert isinstance(layer, Fp8Linear)
    layer.weight, layer.weight_scale = nn.Parameter(values_OI, requires_grad=False), scale_O


def weight_scales(model: nn.Module) -> dict[str, Tensor]:
    """The scales of the weights that are in 8 bits, by the names of the weights."""
    buffers = model.named_buffers()
    return {name.removesuffix("_scale"): scale for name, scale in buffers if name.endswith(".weight_scale")}


def refuse_fp8(model: nn.Module, what: str) -> None:
    """An error where weights are in 8 bits, which are for computing only."""
    if scales := weight_scales(model):
        raise ModelError(
            f"{what} needs weights of at least 16 bits, and {next(iter(scales))} has 8; load it in bfloat16"
        )
