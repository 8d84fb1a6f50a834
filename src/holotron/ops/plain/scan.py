"""The Mamba-2 recurrence, over packed sequences in chunks and one token at a time.

Per head, with a_t = exp(dt_t · A):   S_t = a_t · S_{t-1} + dt_t · x_t ⊗ B_t,   y_t = S_t · C_t + D · x_t.

Shapes: T packed tokens, S sequences, M tokens of one sequence, C chunks, L tokens per chunk, H heads, P head dim,
N state size, G groups of heads that share B and C.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.ops.packing import Packing
from holotron.ops.plain.norm import accumulation_dtype


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
) -> tuple[Tensor, Tensor]:
    """The recurrence over each packed sequence, continuing from its state; dt is already discretized.

    Inside a chunk it is a masked product of matrices, between chunks a short recurrence over states. The chunk size
    changes the cost and the rounding, not the result. Returns the output and the state after each sequence.
    """
    narrow, dtype = x_THP.dtype, accumulation_dtype(x_THP)
    x_THP, dt_TH, A_H = x_THP.to(dtype), dt_TH.to(dtype), A_H.to(dtype)
    B_TGN, C_TGN, D_H = B_TGN.to(dtype), C_TGN.to(dtype), D_H.to(dtype)
    if state_SHPN is None:
        state_SHPN = x_THP.new_zeros(packing.sequences, *x_THP.shape[1:], B_TGN.shape[2])
    outputs: list[Tensor] = []
    states = list(state_SHPN.to(dtype))
    for sequence, (start, length) in enumerate(zip(packing.starts, packing.lengths, strict=False)):
        if length:
            rows = slice(start, start + length)
            y_MHP, states[sequence] = _scan_sequence(
                x_THP[rows], dt_TH[rows], A_H, B_TGN[rows], C_TGN[rows], D_H, chunk_size, states[sequence]
            )
            outputs.append(y_MHP)
    y_THP = torch.cat(outputs) if outputs else x_THP
    return y_THP.to(narrow), torch.stack(states)


def _scan_sequence(
    x_MHP: Tensor, dt_MH: Tensor, A_H: Tensor, B_MGN: Tensor, C_MGN: Tensor, D_H: Tensor, chunk: int, state_HPN: Tensor
) -> tuple[Tensor, Tensor]:
    """The output of M tokens of one sequence, and the state after them."""
    length = min(len(x_MHP), chunk)
    chunks = -(-len(x_MHP) // length)

    # The last chunk is filled up with zeros: with dt = 0 they neither decay the state nor add to it.
    def cut(values: Tensor) -> Tensor:
        filled = F.pad(values, (0, 0) * (values.dim() - 1) + (0, chunks * length - len(values)))
        return filled.unflatten(0, (chunks, length)).transpose(1, 2)

    dt_CHL, x_CHLP, B_CGLN, C_CGLN = cut(dt_MH), cut(x_MHP), cut(B_MGN), cut(C_MGN)
    input_CHLP = x_CHLP.contiguous() * dt_CHL[..., None]

    # Summed in float64: the difference of two long sums would lose what separates neighbours.
    log_decay_CHL = (dt_CHL * A_H[:, None]).double().cumsum(2)
    between_CHLL = (log_decay_CHL[..., :, None] - log_decay_CHL[..., None, :]).to(x_MHP.dtype)
    # What comes later counts for nothing. It is taken away before exp, too, which might make it infinite.
    decay_CHLL = between_CHLL.tril().exp().tril()
    kept_CHL = log_decay_CHL.to(x_MHP.dtype).exp()

    B_CHLN = B_CGLN.repeat_interleave(len(A_H) // B_MGN.shape[1], dim=1)
    added_CHPN = (input_CHLP * decay_CHLL[:, :, -1, :, None]).transpose(2, 3) @ B_CHLN
    entering = [state_HPN]
    for kept_HL, added_HPN in zip(kept_CHL, added_CHPN, strict=True):
        entering.append(torch.addcmul(added_HPN, entering[-1], kept_HL[:, -1, None, None]))
    entering_CHPN = torch.stack(entering[:-1])

    inside_CHLP = _per_head(C_CGLN @ B_CGLN.transpose(2, 3), decay_CHLL) @ input_CHLP
    carried_CHLP = _per_head(C_CGLN, kept_CHL[..., None]) @ entering_CHPN.transpose(2, 3)
    y_MHP = (inside_CHLP + carried_CHLP).transpose(1, 2).flatten(0, 1)[: len(x_MHP)]
    return torch.addcmul(y_MHP, x_MHP, D_H[:, None]), entering[-1]


def _per_head(shared_CGLK: Tensor, own_CHLK: Tensor) -> Tensor:
    """What the heads of a group share, times what each has of its own."""
    return (shared_CGLK[:, :, None] * own_CHLK.unflatten(1, (shared_CGLK.shape[1], -1))).flatten(1, 2)


def ssd_scan_(
    x_THP: Tensor,
    dt_TH: Tensor,
    A_log_H: Tensor,
    B_TGN: Tensor,
    C_TGN: Tensor,
    D_H: Tensor,
    dt_bias_H: Tensor,
    packing: Packing,
    chunk_size: int,
    pool_VHPN: Tensor,
    slots_S: Tensor,
    *,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
) -> Tensor:
    """ssd_scan from and to slots of a pool; dt and A are as the model has them."""
    dt_TH = discretize(dt_TH, dt_bias_H, dt_limit)
    rest = B_TGN, C_TGN, D_H, packing, chunk_size, pool_VHPN[slots_S]
    y_THP, final_SHPN = ssd_scan(x_THP, dt_TH, -A_log_H.exp(), *rest)
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
