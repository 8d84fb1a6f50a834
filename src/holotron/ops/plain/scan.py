"""The Mamba-2 recurrence, over packed sequences in chunks and one token at a time.

Per head, with a_t = exp(dt_t · A):   S_t = a_t · S_{t-1} + dt_t · x_t ⊗ B_t,   y_t = S_t · C_t + D · x_t.

Shapes: T packed tokens, S sequences, Q marks, C chunks, L tokens per chunk, H heads, P head dim, N state size,
G groups of heads that share B and C.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.ops.packing import Chunks, Packing
from holotron.ops.plain.precision import accumulation_dtype


def discretize(dt: Tensor, bias_H: Tensor, limit: tuple[float, float]) -> Tensor:
    """The step sizes: softplus(dt + bias) within the limits, in at least float32."""
    wide = F.softplus(dt.to(accumulation_dtype(dt)) + bias_H)
    return wide if limit == (0.0, float("inf")) else wide.clamp(*limit)


def ssd_scan(
    x_THP: Tensor,
    dt_TH: Tensor,
    A_H: Tensor,
    B_TGN: Tensor,
    C_TGN: Tensor,
    D_H: Tensor,
    packing: Packing,
    chunk_size: int,
    state_SHPN: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The recurrence over each packed sequence, continuing from its state; dt is already discretized.

    Inside a chunk it is a masked product of matrices, between chunks a short recurrence over states. The chunk size
    changes the cost and the rounding, not the result. Returns the output, the state after each sequence and the
    state at each mark.
    """
    chunks = packing.chunks(chunk_size)
    dtype = accumulation_dtype(x_THP)
    heads, groups = x_THP.shape[1], B_TGN.shape[1]

    # A padded place holds zeros: with dt = 0 it neither decays the state nor adds to it. Filled, not multiplied, so
    # that a NaN in one sequence stays there.
    def chunked(values: Tensor) -> Tensor:
        filler = ~chunks.valid_CL.reshape(*chunks.valid_CL.shape, *(1,) * (values.dim() - 1))
        return values.to(dtype)[chunks.tokens_CL].masked_fill(filler, 0)

    dt_CLH, B_CLGN, C_CLGN = chunked(dt_TH), chunked(B_TGN), chunked(C_TGN)
    input_CLHP = chunked(x_THP) * dt_CLH[..., None]

    # Summed in float64: the difference of two long sums would lose what separates neighbours.
    log_decay_CHL = (dt_CLH * A_H.to(dtype)).double().cumsum(1).transpose(1, 2)
    between_CHLL = (log_decay_CHL[..., :, None] - log_decay_CHL[..., None, :]).to(dtype)
    causal_LL = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=x_THP.device).tril()
    decay_CHLL = between_CHLL.masked_fill(~causal_LL, float("-inf")).exp()

    scores_CGLL = torch.einsum("clgn,csgn->cgls", C_CLGN, B_CLGN)
    scores_CHLL = scores_CGLL.repeat_interleave(heads // groups, dim=1) * decay_CHLL
    inside_CLHP = torch.einsum("chls,cshp->clhp", scores_CHLL, input_CLHP)

    B_CLHN = B_CLGN.repeat_interleave(heads // groups, dim=2)
    C_CLHN = C_CLGN.repeat_interleave(heads // groups, dim=2)
    added_CHPN = torch.einsum("chl,clhp,clhn->chpn", decay_CHLL[:, :, -1], input_CLHP, B_CLHN)
    kept_CHL = log_decay_CHL.to(dtype).exp()
    if state_SHPN is None:
        state_SHPN = x_THP.new_zeros(packing.sequences, heads, x_THP.shape[2], B_TGN.shape[2])
    state_SHPN = state_SHPN.to(dtype)
    entering_CHPN, final_SHPN = _carry(state_SHPN, kept_CHL[:, :, -1], added_CHPN, chunks)

    carried_CLHP = torch.einsum("clhn,chpn,chl->clhp", C_CLHN, entering_CHPN, kept_CHL)
    y_THP = (inside_CLHP + carried_CLHP).flatten(0, 1)[chunks.place_T] + D_H.to(dtype)[:, None] * x_THP.to(dtype)

    marked: list[Tensor] = []
    for sequence, count in packing.marks:
        if count == 0:
            marked.append(state_SHPN[sequence])
            continue
        chunk, last = chunks.first_S[sequence] + (count - 1) // chunk_size, (count - 1) % chunk_size
        added_HPN = torch.einsum("hl,lhp,lhn->hpn", decay_CHLL[chunk, :, last], input_CLHP[chunk], B_CLHN[chunk])
        marked.append(entering_CHPN[chunk] * kept_CHL[chunk, :, last, None, None] + added_HPN)
    marked_QHPN = torch.stack(marked) if marked else state_SHPN[:0]
    return y_THP.to(x_THP.dtype), final_SHPN, marked_QHPN


def _carry(state_SHPN: Tensor, kept_CH: Tensor, added_CHPN: Tensor, chunks: Chunks) -> tuple[Tensor, Tensor]:
    """The state that enters each chunk and the state that leaves each sequence."""
    entering: list[Tensor] = []
    final: list[Tensor] = []
    for sequence, (first, count) in enumerate(zip(chunks.first_S, chunks.counts_S, strict=True)):
        state_HPN = state_SHPN[sequence]
        for chunk in range(first, first + count):
            entering.append(state_HPN)
            state_HPN = state_HPN * kept_CH[chunk, :, None, None] + added_CHPN[chunk]
        final.append(state_HPN)
    entering_CHPN = torch.stack(entering) if entering else state_SHPN[:0]
    return entering_CHPN, torch.stack(final)


def ssd_scan_(
    x_THP: Tensor,
    dt_TH: Tensor,
    A_H: Tensor,
    B_TGN: Tensor,
    C_TGN: Tensor,
    D_H: Tensor,
    packing: Packing,
    chunk_size: int,
    pool_VHPN: Tensor,
    slots_S: Tensor,
    mark_slots_Q: Tensor,
) -> Tensor:
    """ssd_scan from and to slots of a pool; the state at each mark goes to the mark's own slot."""
    y_THP, final_SHPN, marked_QHPN = ssd_scan(
        x_THP, dt_TH, A_H, B_TGN, C_TGN, D_H, packing, chunk_size, pool_VHPN[slots_S]
    )
    pool_VHPN[mark_slots_Q] = marked_QHPN.to(pool_VHPN.dtype)
    pool_VHPN[slots_S] = final_SHPN.to(pool_VHPN.dtype)
    return y_THP


def ssd_step(
    x_SHP: Tensor, dt_SH: Tensor, A_H: Tensor, B_SGN: Tensor, C_SGN: Tensor, D_H: Tensor, state_SHPN: Tensor
) -> tuple[Tensor, Tensor]:
    """ssd_scan for one token per sequence: the output and the new state."""
    dtype = accumulation_dtype(x_SHP)
    per_group = x_SHP.shape[1] // B_SGN.shape[1]
    x, dt = x_SHP.to(dtype), dt_SH.to(dtype)
    B_SHN = B_SGN.to(dtype).repeat_interleave(per_group, dim=1)
    C_SHN = C_SGN.to(dtype).repeat_interleave(per_group, dim=1)
    kept_SH = (dt * A_H.to(dtype)).exp()
    state = state_SHPN.to(dtype) * kept_SH[..., None, None] + (dt[..., None] * x)[..., None] * B_SHN[:, :, None, :]
    y_SHP = (state * C_SHN[:, :, None, :]).sum(-1) + D_H.to(dtype)[:, None] * x
    return y_SHP.to(x_SHP.dtype), state
