"""The four mixers a layer can have. Each maps x_TD of a packed batch to what is added to the residual stream.

Shapes: T packed tokens, S sequences, D hidden size, H heads, P head dim, N state size, G groups, C conv channels,
K key/value heads, E experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holotron import ops
from holotron.model.batch import Batch, Memory
from holotron.model.config import AttentionConfig, MambaConfig, MlpConfig, MoeConfig
from holotron.model.fp8 import is_fp8
from holotron.ops import FixedPacking, Packing, QuantizedRows


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return ops.rms_norm(x, self.weight, self.eps)


@dataclass(frozen=True)
class LayerMemory:
    """One layer's part of a Memory: its index among the layers of its own kind."""

    memory: Memory
    index: int


class MambaMixer(nn.Module):
    def __init__(self, config: MambaConfig, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.config = config
        self.eps = eps
        self.in_proj = nn.Linear(hidden_size, config.projection_size, bias=False)
        channels = config.conv_channels
        self.conv1d = nn.Conv1d(channels, channels, config.conv_kernel, groups=channels, bias=config.conv_bias)
        self.A_log = nn.Parameter(torch.zeros(config.heads))
        self.D = nn.Parameter(torch.ones(config.heads))
        self.dt_bias = nn.Parameter(torch.zeros(config.heads))
        self.norm = RMSNorm(config.inner_size, eps)
        self.out_proj = nn.Linear(config.inner_size, hidden_size, bias=False)

    @property
    def takes_fp8(self) -> bool:
        return is_fp8(self.in_proj)

    def forward(self, x_TD: Tensor | QuantizedRows, batch: Batch, layer: LayerMemory | None) -> Tensor:
        c = self.config
        z_TI, xBC_TC, dt_TH = self.in_proj(x_TD).split([c.inner_size, c.conv_channels, c.heads], dim=-1)
        n, packing, norm = batch.steps, batch.packing, (self.norm.weight, self.eps, c.groups)
        if layer is None:
            assert packing is not None
            return self.out_proj(ops.gated_rms_norm(self._scan(xBC_TC, dt_TH, batch, packing, None), z_TI, *norm))
        if is_fp8(self.out_proj):
            rows = QuantizedRows.empty_like(z_TI)
            if n:
                ops.quantize_rows(self._step(z_TI[:n], xBC_TC[:n], dt_TH[:n], batch, layer), rows.part(0, n))
            if packing is not None:
                y_TI = self._scan(xBC_TC[n:], dt_TH[n:], batch, packing, layer)
                ops.gated_rms_norm_fp8(y_TI, z_TI[n:], *norm, rows.part(n))
            return self.out_proj(rows)
        out_TI = z_TI.new_empty(z_TI.shape)
        if n:
            self._step(z_TI[:n], xBC_TC[:n], dt_TH[:n], batch, layer, out_TI[:n])
        if packing is not None:
            y_TI = self._scan(xBC_TC[n:], dt_TH[n:], batch, packing, layer)
            ops.gated_rms_norm(y_TI, z_TI[n:], *norm, out_TI[n:])
        return self.out_proj(out_TI)

    def _step(
        self,
        z_SI: Tensor,
        xBC_SC: Tensor,
        dt_SH: Tensor,
        batch: Batch,
        layer: LayerMemory,
        out_SI: Tensor | None = None,
    ) -> Tensor:
        """One token per session, everything between the two projections at once."""
        assert batch.slots_S is not None
        return ops.mamba_step_(
            z_SI,
            xBC_SC,
            dt_SH,
            self.conv1d.weight.squeeze(1),
            self.conv1d.bias,
            self.A_log,
            self.D,
            self.dt_bias,
            self.norm.weight,
            layer.memory.conv_VMCJ[:, layer.index],
            layer.memory.ssm_VMHPN[:, layer.index],
            batch.slots_S[: batch.steps],
            groups=self.config.groups,
            eps=self.eps,
            dt_limit=self.config.dt_limit,
            out=out_SI,
        )

    def _scan(
        self,
        xBC_TC: Tensor,
        dt_TH: Tensor,
        batch: Batch,
        packing: Packing | FixedPacking,
        layer: LayerMemory | None,
    ) -> Tensor:
        """Whole pieces: convolution and scan from the sessions' states to their new ones."""
        c = self.config
        conv = self.conv1d.weight.squeeze(1), self.conv1d.bias
        if layer is None:
            x_THP, B_TGN, C_TGN = self._split(ops.causal_conv(xBC_TC, *conv, packing))
            dt_TH = ops.discretize(dt_TH, self.dt_bias, c.dt_limit)
            y_THP = ops.ssd_scan(x_THP, dt_TH, -self.A_log.exp(), B_TGN, C_TGN, self.D, packing, c.chunk_size)
        else:
            assert batch.slots_S is not None
            assert isinstance(packing, Packing)
            slots_S = batch.slots_S[batch.steps :]
            conv_VCJ, ssm_VHPN = layer.memory.conv_VMCJ[:, layer.index], layer.memory.ssm_VMHPN[:, layer.index]
            x_THP, B_TGN, C_TGN = self._split(ops.causal_conv_(xBC_TC, *conv, packing, conv_VCJ, slots_S))
            parameters = self.D, self.dt_bias
            place = ssm_VHPN, slots_S
            y_THP = ops.ssd_scan_(
                x_THP, dt_TH, self.A_log, B_TGN, C_TGN, *parameters, packing, c.chunk_size, *place, dt_limit=c.dt_limit
            )
        return y_THP.flatten(1)

    def _split(self, xBC_TC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The scan's x, B and C out of the convolution's output."""
        c = self.config
        x, B, C = xBC_TC.split([c.inner_size, c.groups * c.state_size, c.groups * c.state_size], dim=-1)
        grouped = (c.groups, c.state_size)
        return x.unflatten(-1, (c.heads, c.head_dim)), B.unflatten(-1, grouped), C.unflatten(-1, grouped)


class AttentionMixer(nn.Module):
    def __init__(self, config: AttentionConfig, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.config = config
        self.q_proj = nn.Linear(hidden_size, config.heads * config.head_dim, bias=config.bias)
        self.k_proj = nn.Linear(hidden_size, config.kv_heads * config.head_dim, bias=config.bias)
        self.v_proj = nn.Linear(hidden_size, config.kv_heads * config.head_dim, bias=config.bias)
        self.o_proj = nn.Linear(config.heads * config.head_dim, hidden_size, bias=False)
        self.q_norm = RMSNorm(config.head_dim, eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, eps) if config.qk_norm else None

    @property
    def takes_fp8(self) -> bool:
        return is_fp8(self.q_proj, self.k_proj, self.v_proj)

    def forward(self, x_TD: Tensor | QuantizedRows, batch: Batch, layer: LayerMemory | None) -> Tensor:
        c = self.config
        q_THP = self.q_proj(x_TD).unflatten(-1, (c.heads, c.head_dim))
        k_TKP = self.k_proj(x_TD).unflatten(-1, (c.kv_heads, c.head_dim))
        v_TKP = self.v_proj(x_TD).unflatten(-1, (c.kv_heads, c.head_dim))
        if self.q_norm is not None and self.k_norm is not None:
            q_THP, k_TKP = self.q_norm(q_THP), self.k_norm(k_TKP)
        if c.rope_theta is not None:
            axes_P = None
            if batch.positions_T.ndim > 1 and c.mrope_section is not None:
                axes_P = mrope_axes(c.mrope_section, c.mrope_interleaved, q_THP.device)
            cos, sin = rotations(batch.positions_T, c.head_dim, c.rope_theta, q_THP.dtype, axes_P)
            q_THP, k_TKP = rotate(q_THP, cos, sin), rotate(k_TKP, cos, sin)
        if layer is None:
            assert batch.packing is not None
            y_THP = ops.attention(q_THP, k_TKP, v_TKP, batch.packing)
        else:
            y_THP = self._attend(q_THP, k_TKP, v_TKP, batch, layer)
        return self.o_proj(y_THP.flatten(1))

    def _attend(self, q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, batch: Batch, layer: LayerMemory) -> Tensor:
        """Into the pages, then over them."""
        n, table_SM, lengths_S = batch.steps, batch.page_table_SM, batch.kv_lengths_S
        assert batch.places_T is not None
        assert table_SM is not None
        assert lengths_S is not None
        keys, values = layer.memory.keys_ANKZD[layer.index], layer.memory.values_ANKZD[layer.index]
        ops.write_pages(k_TKP, v_TKP, keys, values, batch.places_T)
        parts: list[Tensor] = []
        if n:
            parts.append(ops.paged_step_attention(q_THP[:n], keys, values, table_SM[:n], lengths_S[:n]))
        if batch.packing is not None:
            assert isinstance(batch.packing, Packing)
            lengths, packing = batch.piece_lengths, batch.packing
            parts.append(ops.paged_attention(q_THP[n:], keys, values, table_SM[n:], lengths, packing))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def rotations(
    positions_T: Tensor, head_dim: int, theta: float, dtype: torch.dtype, axes_P: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding, one row per token, to broadcast over heads.

    With axes_P the positions are [3, T], and each of the P = head_dim / 2 frequencies follows its axis of them.
    """
    # float32 at least, also with 16-bit weights: 16-bit angles would blur neighbouring positions.
    wide = torch.promote_types(dtype, torch.float32)
    half = torch.arange(0, head_dim, 2, device=positions_T.device, dtype=wide) / head_dim
    positions_TP = positions_T[:, None] if axes_P is None else positions_T[axes_P].T
    angles_TP = positions_TP.to(wide) * theta**-half
    angles_TP = torch.cat([angles_TP, angles_TP], dim=-1)[:, None]
    return angles_TP.cos().to(dtype), angles_TP.sin().to(dtype)


@cache
def mrope_axes(section: tuple[int, int, int], interleaved: bool, device: torch.device) -> Tensor:
    """The axis (time 0, row 1, column 2) that each rotary frequency follows.

    Made once, and on the device: a copy from the host would wait, and cannot be recorded.
    """
    time, rows, columns = section
    number_P = torch.arange(time + rows + columns, device=device)
    if not interleaved:
        return (number_P >= time).long() + (number_P >= time + rows).long()
    axis_P = number_P % 3
    is_row_P, is_column_P = (axis_P == 1) & (number_P < 3 * rows), (axis_P == 2) & (number_P < 3 * columns)
    return is_row_P.long() + 2 * is_column_P.long()


def rotate(x_THP: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x_THP.chunk(2, dim=-1)
    return x_THP * cos + torch.cat([-second, first], dim=-1) * sin


class MlpMixer(nn.Module):
    def __init__(self, config: MlpConfig, hidden_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, config.size, bias=False) if config.gated else None
        self.up_proj = nn.Linear(hidden_size, config.size, bias=False)
        self.down_proj = nn.Linear(config.size, hidden_size, bias=False)

    @property
    def takes_fp8(self) -> bool:
        return is_fp8(self.up_proj, self.gate_proj)

    def forward(
        self, x_TD: Tensor | QuantizedRows, batch: Batch | None = None, layer: LayerMemory | None = None
    ) -> Tensor:
        up = self.up_proj(x_TD)
        if self.gate_proj is None and is_fp8(self.down_proj):
            return self.down_proj(ops.relu_squared_fp8(up))
        inner = ops.relu_squared(up) if self.gate_proj is None else F.silu(self.gate_proj(x_TD)) * up
        return self.down_proj(inner)


class Router(nn.Module):
    """Scores in float32, also where the rest computes in 16 bits: near ties decide which experts run."""

    def __init__(self, config: MoeConfig, hidden_size: int) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.zeros(config.experts, hidden_size))
        corrected = config.router == "sigmoid"
        correction = nn.Parameter(torch.zeros(config.experts), requires_grad=False) if corrected else None
        self.e_score_correction_bias = correction

    def forward(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        c = self.config
        wide = torch.promote_types(x_TD.dtype, torch.float32)
        with torch.autocast(x_TD.device.type, enabled=False):
            logits_TE = F.linear(x_TD.to(wide), self.weight.to(wide))
        return ops.route(
            logits_TE,
            self.e_score_correction_bias,
            c.experts_per_token,
            groups=c.groups,
            groups_per_token=c.groups_per_token,
            normalize=c.normalize,
            scaling=c.scaling,
            scoring=c.router,
        )


class Experts(nn.Module):
    """The routed experts' weights, stacked; gate and up of gated ones lie in one parameter, the gate first."""

    def __init__(self, config: MoeConfig, width: int) -> None:
        super().__init__()
        rows = config.expert_size
        self.up_proj = None if config.gated else nn.Parameter(torch.zeros(config.experts, rows, width))
        self.gate_up_proj = nn.Parameter(torch.zeros(config.experts, 2 * rows, width)) if config.gated else None
        self.down_proj = nn.Parameter(torch.zeros(config.experts, width, config.expert_size))

    def forward(self, x_TD: Tensor, chosen_TK: Tensor, weights_TK: Tensor) -> Tensor:
        if self.up_proj is not None:
            return ops.run_experts(x_TD, chosen_TK, weights_TK, self.up_proj, self.down_proj)
        assert self.gate_up_proj is not None
        gate_EFD, up_EFD = self.gate_up_proj.chunk(2, dim=1)
        return ops.run_experts(x_TD, chosen_TK, weights_TK, up_EFD, self.down_proj, gate_EFD, activation="silu")


class MoeMixer(nn.Module):
    takes_fp8 = False  # the router and the experts do not

    def __init__(self, config: MoeConfig, hidden_size: int) -> None:
        super().__init__()
        self.gate = Router(config, hidden_size)
        self.experts = Experts(config, config.latent_size or hidden_size)
        shared = MlpConfig(config.shared_size, gated=config.gated) if config.shared_size else None
        self.shared_experts = MlpMixer(shared, hidden_size) if shared else None
        latent = config.latent_size
        self.fc1_latent_proj = nn.Linear(hidden_size, latent, bias=False) if latent else None
        self.fc2_latent_proj = nn.Linear(latent, hidden_size, bias=False) if latent else None

    def forward(self, x_TD: Tensor, batch: Batch | None = None, layer: LayerMemory | None = None) -> Tensor:
        chosen_TK, weights_TK = self.gate(x_TD)
        routed = x_TD if self.fc1_latent_proj is None else self.fc1_latent_proj(x_TD)
        routed = self.experts(routed, chosen_TK, weights_TK)
        if self.fc2_latent_proj is not None:
            routed = self.fc2_latent_proj(routed)
        return routed if self.shared_experts is None else routed + self.shared_experts(x_TD)
