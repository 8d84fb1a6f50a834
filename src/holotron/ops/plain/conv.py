"""Depthwise causal convolution followed by SiLU, with a state carried from call to call.

Shapes: T packed tokens, S sequences, C channels, K kernel width, J = K - 1 carried inputs.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.ops.packing import Packing
from holotron.ops.plain.norm import accumulation_dtype


def causal_conv(
    x_TC: Tensor, weight_CK: Tensor, bias_C: Tensor | None, packing: Packing, state_SCJ: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """silu(conv(x)) of each packed sequence, continuing from its state: the output and the state after each."""
    carried = weight_CK.shape[1] - 1
    dtype = accumulation_dtype(x_TC)
    if state_SCJ is None:
        state_SCJ = x_TC.new_zeros(packing.sequences, x_TC.shape[1], carried)
    weight_KC = weight_CK.T.to(dtype).contiguous()
    bias = x_TC.new_zeros(x_TC.shape[1], dtype=dtype) if bias_C is None else bias_C.to(dtype)
    outputs: list[Tensor] = []
    states: list[Tensor] = []
    for x_LC, state_CJ in zip(x_TC.split(packing.lengths), state_SCJ, strict=True):
        # Behind the inputs it carries, so that what a sequence's tokens see k places on is one slice.
        padded_RC = torch.cat([state_CJ.T.to(x_TC.dtype), x_LC])
        wide_RC, y_LC = padded_RC.to(dtype), bias
        for k in range(carried + 1):
            y_LC = torch.addcmul(y_LC, wide_RC[k : k + len(x_LC)], weight_KC[k])
        outputs.append(F.silu(y_LC).to(x_TC.dtype))
        states.append(padded_RC[len(x_LC) :].T)
    return torch.cat(outputs), torch.stack(states)


def causal_conv_(
    x_TC: Tensor, weight_CK: Tensor, bias_C: Tensor | None, packing: Packing, pool_VCJ: Tensor, slots_S: Tensor
) -> Tensor:
    """causal_conv from and to slots of a pool."""
    y_TC, final_SCJ = causal_conv(x_TC, weight_CK, bias_C, packing, pool_VCJ[slots_S])
    pool_VCJ[slots_S] = final_SCJ.to(pool_VCJ.dtype)
    return y_TC


def causal_conv_step(
    x_SC: Tensor, weight_CK: Tensor, bias_C: Tensor | None, state_SCJ: Tensor
) -> tuple[Tensor, Tensor]:
    """causal_conv for one token per sequence: the output and the new state."""
    window_SCK = torch.cat([state_SCJ.to(x_SC.dtype), x_SC[:, :, None]], dim=2)
    dtype = accumulation_dtype(x_SC)
    y_SC = (window_SCK.to(dtype) * weight_CK.to(dtype)).sum(-1)
    if bias_C is not None:
        y_SC = y_SC + bias_C.to(dtype)
    return F.silu(y_SC).to(x_SC.dtype), window_SCK[:, :, 1:]
