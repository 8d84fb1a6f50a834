"""Depthwise causal convolution followed by SiLU, with a state carried from call to call.

Shapes: T packed tokens, S sequences, Q marks, C channels, K kernel width, J = K - 1 carried inputs.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.ops.packing import Packing
from holotron.ops.plain.precision import accumulation_dtype


def causal_conv(
    x_TC: Tensor, weight_CK: Tensor, bias_C: Tensor | None, packing: Packing, state_SCJ: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """silu(conv(x)) of each packed sequence, continuing from its state.

    Returns the output, the state after each sequence and the state at each mark.
    """
    carried = weight_CK.shape[1] - 1
    if state_SCJ is None:
        state_SCJ = x_TC.new_zeros(packing.sequences, x_TC.shape[1], carried)
    source, place_T, final_SJ, marked_QJ = packing.windows(carried)
    # Each sequence is laid out behind the inputs it carries, so one window expression serves every token.
    states_RC = state_SCJ.transpose(1, 2).reshape(-1, x_TC.shape[1]).to(x_TC.dtype)
    padded_RC = torch.cat([states_RC, x_TC])[source]
    dtype = accumulation_dtype(x_TC)
    y_TC = x_TC.new_zeros(x_TC.shape, dtype=dtype)
    for k in range(carried + 1):
        y_TC = y_TC + padded_RC[place_T - carried + k].to(dtype) * weight_CK[:, k].to(dtype)
    if bias_C is not None:
        y_TC = y_TC + bias_C.to(dtype)
    return F.silu(y_TC).to(x_TC.dtype), padded_RC[final_SJ].transpose(1, 2), padded_RC[marked_QJ].transpose(1, 2)


def causal_conv_(
    x_TC: Tensor,
    weight_CK: Tensor,
    bias_C: Tensor | None,
    packing: Packing,
    pool_VCJ: Tensor,
    slots_S: Tensor,
    mark_slots_Q: Tensor,
) -> Tensor:
    """causal_conv from and to slots of a pool; the state at each mark goes to the mark's own slot."""
    y_TC, final_SCJ, marked_QCJ = causal_conv(x_TC, weight_CK, bias_C, packing, pool_VCJ[slots_S])
    pool_VCJ[mark_slots_Q] = marked_QCJ.to(pool_VCJ.dtype)
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
