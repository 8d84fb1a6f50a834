"""The vision tower, a RADIO transformer, and the projector that turns its patches into tokens.

Shapes: I images of one size, P = R x C patches each, W tower width, X = prefix + P positions, V values per patch.
Packed images have no axis I: their positions lie one after another, and a FixedPacking says whose they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holotron import ops
from holotron.model.config import QwenVisionConfig, VisionConfig
from holotron.model.grids import Grid
from holotron.model.mixers import RMSNorm
from holotron.model.packed_images import PackedImages
from holotron.model.patch_layout import PackedLayout, PatchLayout
from holotron.ops import FixedPacking

# What of the images attends to each other; None: images of one size along a first axis, each to itself.
Layout = FixedPacking | PatchLayout | PackedLayout | None


class VisionAttention(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)

    def forward(self, x_IXW: Tensor, layout: Layout = None) -> Tensor:
        q, k, v = self.qkv(x_IXW).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        if isinstance(layout, PatchLayout | PackedLayout):
            y_IXHP = layout.attend(q, k, v)
        else:
            y_IXHP = ops.image_attention(q, k, v, layout)
        return self.proj(y_IXHP.flatten(-2))


class VisionMlp(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.mlp_size) if config.gated else None
        self.fc1 = nn.Linear(config.width, config.mlp_size)
        self.fc2 = nn.Linear(config.mlp_size, config.width)
        self.approximate = "tanh" if isinstance(config, QwenVisionConfig) else "none"

    def forward(self, x_IXW: Tensor) -> Tensor:
        inner = self.fc1(x_IXW)
        gate = None if self.gate is None else F.silu(self.gate(x_IXW))
        return self.fc2(F.gelu(inner, approximate=self.approximate) if gate is None else gate * inner)


class VisionBlock(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.norm1 = vision_norm(config, config.width)
        self.attn = VisionAttention(config)
        self.norm2 = vision_norm(config, config.width)
        self.mlp = VisionMlp(config)

    def forward(self, x_IXW: Tensor, layout: Layout = None) -> Tensor:
        x_IXW = x_IXW + self.attn(self.norm1(x_IXW), layout)
        return x_IXW + self.mlp(self.norm2(x_IXW))


def by_grid(x_PW: Tensor, grids: Sequence[Grid], encode: Callable[[Tensor, Grid], Iterable[Tensor]]) -> list[Tensor]:
    """What `encode` makes of each image, from all images' patches packed row by row.

    Images of one size, such as tiles, are given to it as one batch; others attend only to themselves.
    """
    split = x_PW.split([rows * columns for rows, columns in grids])
    encoded: dict[int, Tensor] = {}
    for grid in dict.fromkeys(grids):
        members = [i for i, other in enumerate(grids) if other == grid]
        encoded.update(zip(members, encode(torch.stack([split[i] for i in members]), grid), strict=True))
    return [encoded[i] for i in range(len(grids))]


def vision_norm(config: VisionConfig, size: int) -> nn.Module:
    return RMSNorm(size, config.norm_eps) if config.gated else nn.LayerNorm(size, eps=config.norm_eps)


class VisionTower(nn.Module):
    """RADIO: patches, cropped position table, prefix tokens, transformer blocks, no final norm."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = nn.Linear(config.patch_values, config.width, bias=False)
        # Video checkpoints carry a second patch embedding. It is kept so that they load and save whole.
        frames = config.video_frames
        self.video_embed = nn.Linear(frames * config.patch_values, config.width, bias=False) if frames else None
        self.position_table = nn.Parameter(torch.zeros(1, config.table_side**2, config.width))
        self.prefix = nn.Parameter(torch.zeros(config.prefix_tokens, config.width))
        self.blocks = nn.ModuleList(VisionBlock(config) for _ in range(config.depth))
        self.final_norm = nn.LayerNorm(config.width, eps=config.norm_eps) if config.final_norm else None

    def forward(self, patches: Tensor, grids: Sequence[Grid]) -> list[Tensor]:
        """Features of each image, [rows·columns, width], from all images' patches packed row by row."""
        described = sum(rows * columns for rows, columns in grids)
        if described != len(patches):
            raise ValueError(f"grids {list(grids)} describe {described} patches, but {len(patches)} were given")
        return by_grid(self.patch_embed(patches.to(self.patch_embed.weight.dtype)), grids, self._encode)

    def _encode(self, x_IPW: Tensor, grid: Grid) -> Tensor:
        x_IPW = x_IPW + self.positions(grid).to(x_IPW.dtype)
        x_IXW = torch.cat([self.prefix.expand(len(x_IPW), -1, -1), x_IPW], dim=1)
        for block in self.blocks:
            x_IXW = block(x_IXW)
        x_IPW = x_IXW[:, self.config.prefix_tokens :]
        return x_IPW if self.final_norm is None else self.final_norm(x_IPW)

    def encode_packed(self, patches_PV: Tensor, positions_PW: Tensor, images: PackedImages) -> Tensor:
        """Features of packed images, shuffled as the projector takes them; positions_PW are those of all patches."""
        x_PW = self.patch_embed(patches_PV)
        x_PW = x_PW + positions_PW.to(x_PW.dtype)
        # The residual stream stays wide: many small contributions would be lost in 16 bits.
        x_XW = images.arranged(x_PW.to(self.prefix.dtype))
        x_XW = x_XW + images.prefix_XK.to(x_XW.dtype) @ self.prefix
        for block in self.blocks:
            x_XW = block(x_XW, images.packing)
        x_YW = images.corners(x_XW)
        return (x_YW if self.final_norm is None else self.final_norm(x_YW)).unflatten(0, (-1, 4)).flatten(1)

    def positions(self, grid: Grid) -> Tensor:
        """Position embeddings [rows·columns, width]: the table stretched to the larger side, then cropped."""
        rows, columns = grid
        side, larger = self.config.table_side, max(grid)
        wide = torch.promote_types(self.position_table.dtype, torch.float32)
        table = self.position_table.to(wide).view(1, side, side, -1).permute(0, 3, 1, 2)
        if larger != side:
            table = F.interpolate(table, size=(larger, larger), mode="bilinear", align_corners=False)
        return table[0, :, :rows, :columns].flatten(1).T


class Projector(nn.Module):
    """Four neighbouring patches become one token of the decoder: norm, widen, relu², narrow."""

    def __init__(self, config: VisionConfig, hidden_size: int) -> None:
        super().__init__()
        self.norm = RMSNorm(config.shuffled_width, config.projector_eps)
        self.up = nn.Linear(config.shuffled_width, config.projector_size, bias=False)
        self.down = nn.Linear(config.projector_size, hidden_size, bias=False)

    def forward(self, shuffled: Tensor) -> Tensor:
        """Token embeddings of shuffled features, [tokens, hidden size]."""
        return self.down(F.relu(self.up(self.norm(shuffled))).square())


def pixel_shuffle(image_PW: Tensor, grid: Grid) -> Tensor:
    """Each 2x2 square of patches side by side in the channels: [R·C, W] → [R·C / 4, 4W]."""
    rows, columns = grid
    if rows % 2 or columns % 2:
        raise ValueError(f"a patch grid must have even sides to be shuffled, got {rows}x{columns}")
    squares = image_PW.view(rows // 2, 2, columns // 2, 2, -1).permute(0, 2, 1, 3, 4)
    return squares.reshape(rows * columns // 4, -1)
