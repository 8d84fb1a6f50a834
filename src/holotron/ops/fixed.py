"""Scan, convolution and attention over a FixedPacking, forward and backward.

They compute what the ops of the same name in `plain` do for sequences that start from nothing. On a GPU nothing here
depends on a value of a table, so a batch of other sequences is the same program, which can be compiled once. There, in
16 bits, kernels with gradients of their own take the place of what is written here.

Shapes: T tokens, S sequences, C chunks of L tokens, H heads, P head dim, N state size, G groups; in the convolution
C channels, K taps, J of them before the present one; in attention K key/value heads.
"""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.ops.fixed_packing import FixedPacking, ScanTables
from holotron.ops.plain.carry import carry as plain_carry

if torch.cuda.is_available() and find_spec("triton") is not None:
    from holotron.ops.triton.bounded_attention import bounded_attention as flash_attention
    from holotron.ops.triton.carry import carry as triton_carry
    from holotron.ops.triton.conv_training import causal_conv as triton_conv
    from holotron.ops.triton.even_attention import even_attention
    from holotron.ops.triton.scan_training import ssd_scan as triton_scan

# Chunks that a program holds whole, and the most taps of a convolution.
TRITON_CHUNKS = (16, 32, 64, 128)
TRITON_TAPS = 4


class _MoveRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, from_R: Tensor, is_filled_R: Tensor, to_Q: Tensor, is_moved_Q: Tensor) -> Tensor:
        ctx.save_for_backward(to_Q, is_moved_Q)
        return torch.where(_as_rows(is_filled_R, x), x[from_R], 0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        [gradient] = gradients
        to_Q, is_moved_Q = ctx.saved_tensors
        back = torch.where(_as_rows(is_moved_Q, gradient), gradient[to_Q], 0)
        return back.sum(1) if to_Q.dim() == 2 else back, None, None, None, None


def _as_rows(mask: Tensor, x: Tensor) -> Tensor:
    return mask.reshape(*mask.shape, *(1,) * (x.dim() - 1))


def move_rows(x: Tensor, from_R: Tensor, is_filled_R: Tensor, to_Q: Tensor, is_moved_Q: Tensor) -> Tensor:
    """Row r of the result is row from[r] of x, or zeros where nothing fills it.

    `to` is the way back: row q of x went to row to[q], if it was moved, or to all of to[q, :] that it was moved to. The
    gradient is then a look-up as well; without the way back it would be a sum over colliding indices, which a GPU does
    one after another.
    """
    return _MoveRows.apply(x, from_R, is_filled_R, to_Q, is_moved_Q)  # type: ignore[no-untyped-call]


def ssd_scan(
    x_THP: Tensor, dt_TH: Tensor, A_H: Tensor, B_TGN: Tensor, C_TGN: Tensor, D_H: Tensor, packing: FixedPacking
) -> Tensor:
    """The recurrence over each sequence, in the chunks that the packing is cut into."""
    tables = packing.scan
    assert tables is not None
    if x_THP.is_cuda and x_THP.dtype.itemsize == 2 and tables.tokens_CL.shape[1] in TRITON_CHUNKS:
        sizes = *chunk_tables(tables), tables.tokens_CL.shape[1]
        return triton_scan(x_THP, dt_TH, A_H, B_TGN, C_TGN, D_H, *sizes)
    dtype, per_group = x_THP.dtype, x_THP.shape[1] // B_TGN.shape[1]
    length = tables.tokens_CL.shape[1]
    chunks = tables.tokens_CL.flatten(), tables.is_filled_CL.flatten()
    places = tables.place_T, tables.is_used_T

    def cut(values: Tensor) -> Tensor:
        return move_rows(values, *chunks, *places).unflatten(0, tables.tokens_CL.shape).transpose(1, 2)

    # A place that no token fills holds zeros: with dt = 0 it neither decays the state nor adds to it.
    dt_CHL, x_CHLP, B_CGLN, C_CGLN = cut(dt_TH), cut(x_THP), cut(B_TGN), cut(C_TGN)
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
    carry = triton_carry if added_CHPN.is_cuda else plain_carry
    left_CH, added_CHPN = kept_CHL[..., -1].contiguous(), added_CHPN.to(kept_CHL.dtype)
    entering_CHPN = carry(left_CH, added_CHPN, tables.first_S, tables.counts_S)
    carried_CHLP = (C_CHLN * kept_CHL[..., None].to(dtype)) @ entering_CHPN.to(dtype).transpose(2, 3)

    y_CLHP = (inside_CHLP + carried_CHLP).transpose(1, 2)
    return move_rows(y_CLHP.flatten(0, 1), *places, *chunks) + D_H[:, None].to(dtype) * x_THP


def chunk_tables(tables: ScanTables) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The first token and the number of tokens of each chunk, the same of sequences in chunks, and the used tokens."""
    starts_C, counts_C = tables.tokens_CL[:, 0].int(), tables.is_filled_CL.sum(1, dtype=torch.int32)
    return starts_C, counts_C, tables.first_S, tables.counts_S, tables.is_used_T.sum(0, keepdim=True, dtype=torch.int32)


def causal_conv(x_TC: Tensor, weight_CK: Tensor, bias_C: Tensor | None, packing: FixedPacking) -> Tensor:
    """silu(conv(x)) of each sequence, in the type of x."""
    assert packing.scan is not None
    if x_TC.is_cuda and x_TC.dtype.itemsize == 2 and weight_CK.shape[1] <= TRITON_TAPS:
        return triton_conv(x_TC, weight_CK, bias_C, packing.scan.same_TJ)
    same_TJ, weight_CK, taps = packing.scan.same_TJ, weight_CK.to(x_TC.dtype), weight_CK.shape[1]
    y_TC = x_TC * weight_CK[:, -1]
    for back in range(1, taps):
        earlier_TC = F.pad(x_TC, (0, 0, back, 0))[: len(x_TC)]
        y_TC = y_TC + torch.where(same_TJ[:, back - 1, None], earlier_TC, 0.0) * weight_CK[:, taps - 1 - back]
    return F.silu(y_TC if bias_C is None else y_TC + bias_C.to(x_TC.dtype))


def attention(q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, packing: FixedPacking, causal: bool) -> Tensor:
    """Attention between the tokens of each sequence; 16-bit on a GPU by a library's kernel."""
    if q_THP.is_cuda and q_THP.dtype.itemsize == 2:
        if packing.each and (causal or packing.each < len(q_THP)):
            return even_attention(q_THP, k_TKP, v_TKP, packing.each, causal)
        return flash_attention(q_THP, k_TKP, v_TKP, packing.bounds_S, packing.longest, causal)
    groups = q_THP.shape[1] // k_TKP.shape[1]
    if groups > 1:
        k_TKP, v_TKP = k_TKP.repeat_interleave(groups, 1), v_TKP.repeat_interleave(groups, 1)
    parts = []
    for start, end in pairwise(packing.bounds_S.tolist()):
        if end > start:
            q, k, v = (part[None, start:end].transpose(1, 2) for part in (q_THP, k_TKP, v_TKP))
            parts.append(F.scaled_dot_product_attention(q, k, v, is_causal=causal)[0].transpose(0, 1))
    return torch.cat(parts)
