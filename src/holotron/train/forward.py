"""The model over a training batch: the same weights and the same function as `Model`, in a form that compiles.

Shapes as in `batches`, and D hidden size, W tower width, V values per patch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.model.config import VisionConfig
from holotron.model.decoder import Layer
from holotron.model.mixers import AttentionMixer, MambaMixer
from holotron.model.model import Model
from holotron.model.vision import VisionBlock, VisionTower
from holotron.ops.chunked import bounded_attention, chunked_scan, masked_conv, move_rows
from holotron.ops.plain.norm import gated_rms_norm, rms_norm
from holotron.ops.plain.scan import discretize
from holotron.train.batches import Batch
from holotron.train.loss import Coordinates, losses_of_learned
from holotron.train.ocr_loss import OcrHead, loss_of_glyphs


@dataclass(frozen=True)
class Parts:
    """The pieces that repeat, as they are or compiled: one compilation serves all layers of a kind."""

    tower_block: Callable[[VisionBlock, Tensor, Batch], Tensor]
    layer: Callable[[Layer, Tensor, Batch], Tensor]
    losses: Callable[[Tensor, Tensor, Coordinates], Tensor]
    glyphs: Callable[[OcrHead, Tensor, Tensor], Tensor]

    @classmethod
    def plain(cls) -> Parts:
        return cls(_tower_block, _layer, losses_of_learned, loss_of_glyphs)

    @classmethod
    def compiled(cls) -> Parts:
        """Shapes are fixed by the budget, so each kind of piece is compiled once, in seconds rather than minutes."""
        return cls(
            torch.compile(_tower_block, dynamic=False),
            torch.compile(_layer, dynamic=False),
            torch.compile(losses_of_learned, dynamic=False),
            torch.compile(loss_of_glyphs, dynamic=False),
        )


def logits_of_learned(
    model: Model, batch: Batch, patches_PV: Tensor, positions_PW: Tensor, parts: Parts | None = None
) -> Tensor:
    """Logits [N, vocabulary] behind each row that a learned token follows."""
    parts = parts or Parts.plain()
    return logits_of_seen(model, batch, see(model, batch, patches_PV, positions_PW, parts), parts)


def logits_of_seen(model: Model, batch: Batch, images_MD: Tensor, parts: Parts) -> Tensor:
    """The same, from what was seen."""
    x_TD = model.decoder.embeddings(batch.token_ids_T)
    placed_TD = move_rows(
        images_MD.to(x_TD.dtype), batch.image_row_T, batch.is_image_T, batch.image_token_MR, batch.is_image_token_MR
    )
    x_TD = torch.where(batch.is_image_T[:, None], placed_TD, x_TD)
    for layer in model.decoder.layers:
        assert isinstance(layer, Layer)
        x_TD = parts.layer(layer, x_TD, batch)
    norm = model.decoder.norm_f
    return F.linear(rms_norm(x_TD[batch.rows_N], norm.weight, norm.eps), model.decoder.lm_head.weight)


def _layer(layer: Layer, x_TD: Tensor, batch: Batch) -> Tensor:
    return x_TD + _mix(layer, rms_norm(x_TD, layer.norm.weight, layer.norm.eps), batch)


def _mix(layer: Layer, x_TD: Tensor, batch: Batch) -> Tensor:
    mixer = layer.mixer
    if isinstance(mixer, MambaMixer):
        return _mamba(mixer, x_TD, batch)
    if isinstance(mixer, AttentionMixer):
        return _attend(mixer, x_TD, batch)
    out: Tensor = mixer(x_TD)
    return out


def _mamba(mixer: MambaMixer, x_TD: Tensor, batch: Batch) -> Tensor:
    c = mixer.config
    z_TI, xBC_TC, dt_TH = mixer.in_proj(x_TD).split([c.inner_size, c.conv_channels, c.heads], dim=-1)
    bias = mixer.conv1d.bias
    weight = mixer.conv1d.weight.squeeze(1).to(xBC_TC.dtype)
    xBC_TC = masked_conv(xBC_TC, weight, None if bias is None else bias.to(xBC_TC.dtype), batch.same_TJ)
    x, B, C = xBC_TC.split([c.inner_size, c.groups * c.state_size, c.groups * c.state_size], dim=-1)
    y_THP = chunked_scan(
        x.unflatten(-1, (c.heads, c.head_dim)),
        discretize(dt_TH, mixer.dt_bias, c.dt_limit),
        -mixer.A_log.exp(),
        B.unflatten(-1, (c.groups, c.state_size)),
        C.unflatten(-1, (c.groups, c.state_size)),
        mixer.D,
        batch.tokens_CL,
        batch.valid_CL,
        batch.place_T,
        batch.is_used_T,
        batch.first_S,
        batch.counts_S,
    )
    out: Tensor = mixer.out_proj(gated_rms_norm(y_THP.flatten(1), z_TI, mixer.norm.weight, mixer.eps, c.groups))
    return out


def _attend(mixer: AttentionMixer, x_TD: Tensor, batch: Batch) -> Tensor:
    c = mixer.config
    q_THP = mixer.q_proj(x_TD).unflatten(-1, (c.heads, c.head_dim))
    k_TKP = mixer.k_proj(x_TD).unflatten(-1, (c.kv_heads, c.head_dim))
    v_TKP = mixer.v_proj(x_TD).unflatten(-1, (c.kv_heads, c.head_dim))
    if mixer.q_norm is not None and mixer.k_norm is not None:
        q_THP, k_TKP = mixer.q_norm(q_THP), mixer.k_norm(k_TKP)
    y_THP = bounded_attention(q_THP, k_TKP, v_TKP, batch.bounds_S, batch.longest, causal=True)
    out: Tensor = mixer.o_proj(y_THP.flatten(1))
    return out


# ---- eyes ----


def see(model: Model, batch: Batch, patches_PV: Tensor, positions_PW: Tensor, parts: Parts) -> Tensor:
    """Token embeddings [M, D] of all images."""
    tower, projector = model.vision, model.projector
    assert tower is not None
    assert projector is not None
    x_PW = tower.patch_embed(patches_PV)
    x_PW = x_PW + positions_PW.to(x_PW.dtype)
    # The residual stream stays wide: many small contributions would be lost in 16 bits.
    x_PW = x_PW.to(tower.prefix.dtype)
    x_XW = move_rows(x_PW, batch.patch_X, batch.is_patch_X, batch.position_P, batch.is_seen_P)
    x_XW = x_XW + batch.prefix_XK.to(x_XW.dtype) @ tower.prefix
    for block in tower.blocks:
        assert isinstance(block, VisionBlock)
        x_XW = parts.tower_block(block, x_XW, batch)
    if tower.final_norm is not None:
        x_XW = tower.final_norm(x_XW)
    corners_YW = move_rows(x_XW, batch.corner_Y, batch.is_corner_Y, batch.square_X, batch.is_patch_X)
    shuffled = corners_YW.unflatten(0, (-1, 4)).flatten(1)
    normed = rms_norm(shuffled, projector.norm.weight, projector.norm.eps)
    out: Tensor = projector.down(F.relu(projector.up(normed)).square())
    return out


def _tower_block(block: VisionBlock, x_XW: Tensor, batch: Batch) -> Tensor:
    x_XW = x_XW + _attend_in_image(block, x_XW, batch)
    out: Tensor = x_XW + block.mlp(block.norm2(x_XW))
    return out


def _attend_in_image(block: VisionBlock, x_XW: Tensor, batch: Batch) -> Tensor:
    attention = block.attn
    q, k, v = attention.qkv(block.norm1(x_XW)).unflatten(-1, (3, attention.heads, -1)).unbind(1)
    y = bounded_attention(q, k, v, batch.tower_bounds_I, batch.longest_image, causal=False)
    out: Tensor = attention.proj(y.flatten(1))
    return out


def prepare_patches(batch: Batch, vision: VisionConfig, most: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The normalised patches of all images, as ImageProcessor makes them, [most, V]."""
    patch = vision.patch_size
    mean, std = _constant(vision.mean, device), _constant(vision.std, device)
    out = torch.zeros(most, vision.patch_values, dtype=dtype, device=device)
    filled = 0
    for pixels, (rows, columns) in zip(batch.pixels, batch.grids, strict=True):
        image = pixels.to(device, non_blocking=True).permute(0, 3, 1, 2).float()
        if image.shape[2:] != (rows * patch, columns * patch):
            size = (rows * patch, columns * patch)
            image = F.interpolate(image, size, mode="bicubic", antialias=True, align_corners=False)
        image = (image / 255 - mean) / std
        squares = image.unflatten(3, (columns, patch)).unflatten(2, (rows, patch)).permute(0, 2, 4, 1, 3, 5)
        count = len(pixels) * rows * columns
        out[filled : filled + count] = squares.reshape(count, -1).to(dtype)
        filled += count
    return out


@cache
def _constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Channels' values, [3, 1, 1]. Made once: bringing them over would wait for all that the device has yet to do."""
    return torch.tensor(values, device=device)[:, None, None]


def place_patches(batch: Batch, tower: VisionTower, most: int) -> Tensor:
    """The position embeddings of all patches, [most, W]."""
    parts = [
        tower.positions(grid).repeat(len(pixels), 1) for pixels, grid in zip(batch.pixels, batch.grids, strict=True)
    ]
    placed = torch.cat(parts) if parts else tower.position_table.new_zeros(0, tower.config.width)
    return F.pad(placed, (0, 0, 0, most - len(placed)))
