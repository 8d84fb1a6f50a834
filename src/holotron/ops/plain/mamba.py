"""One token per session through the recurrent part of a Mamba-2 mixer, as one op.

Shapes: S sessions, I inner width, C conv channels, J carried inputs, V pool slots, H heads, P head dim, N state size.
"""

import torch
from torch import Tensor

from holotron.ops.plain.conv import causal_conv_step
from holotron.ops.plain.norm import gated_rms_norm
from holotron.ops.plain.scan import discretize, ssd_step


def mamba_step_(
    z_SI: Tensor,
    xBC_SC: Tensor,
    dt_SH: Tensor,
    conv_weight_CK: Tensor,
    conv_bias_C: Tensor | None,
    A_log_H: Tensor,
    D_H: Tensor,
    dt_bias_H: Tensor,
    norm_weight_I: Tensor,
    conv_pool_VCJ: Tensor,
    ssm_pool_VHPN: Tensor,
    slots_S: Tensor,
    *,
    groups: int,
    eps: float,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    out: Tensor | None = None,
) -> Tensor:
    """Convolution, recurrence and gated norm of one token each; the sessions' slots are advanced in place."""
    heads, head_dim, state_size = ssm_pool_VHPN.shape[1:]
    dt_SH = discretize(dt_SH, dt_bias_H, dt_limit)
    xBC_SC, conv_SCJ = causal_conv_step(xBC_SC, conv_weight_CK, conv_bias_C, conv_pool_VCJ[slots_S])
    x, B, C = xBC_SC.split([heads * head_dim, groups * state_size, groups * state_size], dim=-1)
    y_SHP, ssm_SHPN = ssd_step(
        x.unflatten(-1, (heads, head_dim)),
        dt_SH,
        -torch.exp(A_log_H),
        B.unflatten(-1, (groups, state_size)),
        C.unflatten(-1, (groups, state_size)),
        D_H,
        ssm_pool_VHPN[slots_S],
    )
    conv_pool_VCJ[slots_S] = conv_SCJ.to(conv_pool_VCJ.dtype)
    ssm_pool_VHPN[slots_S] = ssm_SHPN.to(ssm_pool_VHPN.dtype)
    return gated_rms_norm(y_SHP.flatten(1), z_SI, norm_weight_I, eps, groups, out)
