"""The vision towers of Qwen3-VL and Qwen2.5-VL, which end in mergers that make tokens.

Shapes: I images of one size, P patches each, W tower width, D decoder width, V values per patch, M image tokens. Packed
images have no axis I (`packed_images.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holotron.model.config import QwenVisionConfig
from holotron.model.grids import Grid
from holotron.model.packed_images import PackedImages
from holotron.model.patch_layout import PackedLayout, PatchLayout, PatchRotation
from holotron.model.vision import Layout, VisionBlock, by_grid, pixel_shuffle, vision_norm

FRAMES = 2  # that a patch embedding takes: an image is shown twice


class QwenMerger(nn.Module):
    """Four neighbouring patches become one token of the decoder. Deepstack mergers normalise the four together."""

    def __init__(self, config: QwenVisionConfig, hidden_size: int, *, together: bool) -> None:
        super().__init__()
        self.together = together
        wide = config.shuffled_width
        self.norm = vision_norm(config, wide if together else config.width)
        self.up = nn.Linear(wide, wide)
        self.down = nn.Linear(wide, hidden_size)

    def forward(self, shuffled: Tensor) -> Tensor:
        """Token embeddings of shuffled features, [tokens, hidden size]."""
        normed = self.norm(shuffled if self.together else shuffled.unflatten(1, (4, -1)))
        return self.down(F.gelu(self.up(normed.flatten(1))))


class QwenVisionTower(nn.Module):
    """Patches in, tokens of the decoder out; with deepstack each token's features from inside follow its embedding."""

    def __init__(self, config: QwenVisionConfig, hidden_size: int) -> None:
        super().__init__()
        self.config = config
        is_3 = config.version == "3"
        frames = (FRAMES, config.patch_size, config.patch_size)
        self.patch_embed = nn.Conv3d(3, config.width, frames, stride=frames, bias=is_3)
        self.position_table = nn.Parameter(torch.zeros(config.table_side**2, config.width)) if is_3 else None
        self.blocks = nn.ModuleList(VisionBlock(config) for _ in range(config.depth))
        self.merger = QwenMerger(config, hidden_size, together=False)
        self.deepstack = nn.ModuleList(QwenMerger(config, hidden_size, together=True) for _ in config.deepstack)

    def forward(self, patches: Tensor, grids: Sequence[Grid]) -> list[Tensor]:
        """Tokens of each image, [rows·columns / 4, D·(1 + deepstack)], from all images' patches packed row by row."""
        return by_grid(self._embed_patches(patches), grids, self._encode)

    def _embed_patches(self, patches_PV: Tensor) -> Tensor:
        weight = self.patch_embed.weight
        shown = patches_PV.to(weight.dtype).view(-1, 3, 1, self.config.patch_size**2).expand(-1, -1, FRAMES, -1)
        return F.linear(shown.flatten(1), weight.flatten(1), self.patch_embed.bias)

    def _encode(self, x_IPW: Tensor, grid: Grid) -> list[Tensor]:
        config = self.config
        head_dim = config.width // config.heads
        windowed = PatchLayout.build(grid, head_dim, config.window, x_IPW.device, x_IPW.dtype)
        if self.position_table is not None:
            x_IPW = x_IPW + self.positions(grid).to(x_IPW.dtype)
        back_P = windowed.order_P.argsort()

        def merge(merger: nn.Module, x_IPW: Tensor) -> Tensor:
            return torch.cat([merger(pixel_shuffle(image_PW[back_P], grid)) for image_PW in x_IPW])

        tokens = self._blocks(x_IPW[:, windowed.order_P], windowed, windowed.whole(), merge)
        return list(tokens.chunk(len(x_IPW)))

    def encode_packed(self, patches_PV: Tensor, positions_PW: Tensor, images: PackedImages) -> Tensor:
        """Tokens of packed images, [M, D·(1 + deepstack)]; positions_PW are those of all patches."""
        config = self.config
        x_PW = self._embed_patches(patches_PV)
        x_PW = x_PW + positions_PW.to(x_PW.dtype)
        # The residual stream stays wide: many small contributions would be lost in 16 bits.
        x_XW = images.arranged(x_PW.to(self.patch_embed.weight.dtype))
        rotation = PatchRotation.of(images.places_X2, config.width // config.heads, x_XW.dtype)
        whole = PackedLayout(images.packing, rotation)
        windowed = whole if images.windows is None else PackedLayout(images.windows, rotation)

        def merge(merger: nn.Module, x_XW: Tensor) -> Tensor:
            return merger(images.corners(x_XW).unflatten(0, (-1, 4)).flatten(1))

        return self._blocks(x_XW, windowed, whole, merge)

    def _blocks(
        self, x: Tensor, windowed: Layout, whole: Layout, merge: Callable[[nn.Module, Tensor], Tensor]
    ) -> Tensor:
        """The blocks, and the tokens that mergers make of their output."""
        config = self.config
        features: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            x = block(x, whole if number in config.full_attention else windowed)
            if number in config.deepstack:
                features.append(merge(self.deepstack[config.deepstack.index(number)], x))
        return torch.cat([merge(self.merger, x), *features], dim=1)

    def positions(self, grid: Grid) -> Tensor:
        """Position embeddings [rows·columns, width]: the table stretched so that its corners lie on the image's."""
        assert self.position_table is not None
        side = self.config.table_side
        wide = torch.promote_types(self.position_table.dtype, torch.float32)
        table = self.position_table.to(wide).view(1, side, side, -1).permute(0, 3, 1, 2)
        return F.interpolate(table, size=grid, mode="bilinear", align_corners=True)[0].flatten(1).T
