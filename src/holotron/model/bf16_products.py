"""Products of matrices in bfloat16 on a processor that has instructions for them, everything else as wide as it was.

Half the bytes and twice the speed of float32 with AVX-512 BF16 (Zen 4, Cooper Lake), more with AMX. Weights of products
and the inputs of each are rounded to 8 bits of mantissa and summed in float32; the residual stream, norms, scan, state,
embeddings and head stay in float32. Without such instructions 16 bits are slower than 32, and nothing is changed.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Bf16Linear(nn.Linear):
    """W x + b in bfloat16, of an input of any type; W and b are those of the layer it replaces, rounded."""

    def __init__(self, base: nn.Linear) -> None:
        nn.Module.__init__(self)  # not Linear's: nothing is to be drawn that is thrown away again
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight = nn.Parameter(base.weight.detach().bfloat16(), requires_grad=False)
        self.bias = None if base.bias is None else nn.Parameter(base.bias.detach().bfloat16(), requires_grad=False)

    def forward(self, x_TI: Tensor) -> Tensor:
        return F.linear(x_TI.bfloat16(), self.weight, self.bias)


def use_bf16_products(model: nn.Module) -> None:
    """Have the layers of decoder, vision tower and projector multiply in bfloat16."""
    for name, base in list(model.named_modules()):
        if type(base) is nn.Linear and name != "decoder.lm_head":
            model.set_submodule(name, Bf16Linear(base))
