"""Scan, convolution and attention over batches whose tables are tensors: what training runs, forward and backward.

They compute what the ops of the same name in `plain` do for whole sequences. Nothing here depends on a value of a
table, so a batch of other sequences is the same program, which can be compiled once.

Shapes: T tokens, S sequences, C chunks of L tokens, H heads, P head dim, N state size, G groups, K channels, J taps.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.ops.plain.carry import carry as plain_carry


def chunked_scan(
    x_THP: Tensor,
    dt_TH: Tensor,
    A_H: Tensor,
    B_TGN: Tensor,
    C_TGN: Tensor,
    D_H: Tensor,
    tokens_CL: Tensor,
    valid_CL: Tensor,
    place_T: Tensor,
    first_S: Tensor,
    counts_S: Tensor,
) -> Tensor:
    """ssd_scan's output for sequences that start from nothing."""
    dtype, per_group = x_THP.dtype, x_THP.shape[1] // B_TGN.shape[1]
    length = tokens_CL.shape[1]
    dt_CLH = torch.where(valid_CL[..., None], dt_TH[tokens_CL], 0.0)
    x_CHLP = x_THP[tokens_CL].transpose(1, 2)
    B_CGLN, C_CGLN = B_TGN[tokens_CL].transpose(1, 2), C_TGN[tokens_CL].transpose(1, 2)
    dt_CHL = dt_CLH.transpose(1, 2)
    log_decay_CHL = (dt_CHL * A_H[:, None]).cumsum(2)

    causal_LL = torch.ones(length, length, dtype=torch.bool, device=x_THP.device).tril()
    between_CHLL = (log_decay_CHL[..., :, None] - log_decay_CHL[..., None, :]).masked_fill(~causal_LL, float("-inf"))
    scores_CGLL = C_CGLN @ B_CGLN.transpose(2, 3)
    # dt stands on the side of the input, so that it is multiplied once per pair and not once per channel.
    weights_CHLL = scores_CGLL.repeat_interleave(per_group, 1) * (between_CHLL.exp() * dt_CHL[:, :, None, :])
    inside_CHLP = weights_CHLL.to(dtype) @ x_CHLP

    to_end_CHL = (log_decay_CHL[..., -1:] - log_decay_CHL).exp() * dt_CHL
    B_CHLN, C_CHLN = B_CGLN.repeat_interleave(per_group, 1), C_CGLN.repeat_interleave(per_group, 1)
    added_CHPN = (x_CHLP * to_end_CHL[..., None].to(dtype)).transpose(2, 3) @ B_CHLN
    kept_CHL = log_decay_CHL.exp()
    entering_CHPN = _carry(kept_CHL[..., -1].contiguous(), added_CHPN.to(kept_CHL.dtype), first_S, counts_S)
    carried_CHLP = (C_CHLN * kept_CHL[..., None].to(dtype)) @ entering_CHPN.to(dtype).transpose(2, 3)

    y_CLHP = (inside_CHLP + carried_CHLP).transpose(1, 2)
    return y_CLHP.flatten(0, 1)[place_T] + D_H[:, None].to(dtype) * x_THP


def _carry(kept_CH: Tensor, added_CHPN: Tensor, first_S: Tensor, counts_S: Tensor) -> Tensor:
    if added_CHPN.is_cuda:
        from holotron.ops.triton.carry import carry

        return carry(kept_CH, added_CHPN, first_S, counts_S)
    return plain_carry(kept_CH, added_CHPN, first_S, counts_S)


def masked_conv(x_TK: Tensor, weight_KJ: Tensor, bias_K: Tensor | None, same_TJ: Tensor) -> Tensor:
    """causal_conv's output for sequences that start from nothing."""
    taps = weight_KJ.shape[1]
    y_TK = x_TK * weight_KJ[:, -1]
    for back in range(1, taps):
        earlier_TK = F.pad(x_TK, (0, 0, back, 0))[: len(x_TK)]
        y_TK = y_TK + torch.where(same_TJ[:, back - 1, None], earlier_TK, 0.0) * weight_KJ[:, taps - 1 - back]
    return F.silu(y_TK if bias_K is None else y_TK + bias_K)


def bounded_attention(
    q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, bounds_S: Tensor, longest: int, causal: bool
) -> Tensor:
    """Attention inside each [bounds[i], bounds[i+1]); `longest` is the most tokens between two bounds."""
    groups = q_THP.shape[1] // k_TKP.shape[1]
    if groups > 1:
        k_TKP, v_TKP = k_TKP.repeat_interleave(groups, 1), v_TKP.repeat_interleave(groups, 1)
    if q_THP.is_cuda:
        attended: Tensor = torch.ops.aten._flash_attention_forward(
            q_THP, k_TKP, v_TKP, bounds_S, bounds_S, longest, longest, 0.0, causal, False
        )[0]
        return attended
    parts = []
    bounds = bounds_S.tolist()
    for start, end in zip(bounds, bounds[1:], strict=False):
        if end > start:
            q, k, v = (part[None, start:end].transpose(1, 2) for part in (q_THP, k_TKP, v_TKP))
            parts.append(F.scaled_dot_product_attention(q, k, v, is_causal=causal)[0].transpose(0, 1))
    return torch.cat(parts)
