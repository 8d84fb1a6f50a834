"""The vision towers of Qwen3-VL and Qwen2.5-VL, which end in mergers that make tokens.

Shapes: I images of one size, P patches each, W tower width, D decoder width, V values per patch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holotron.model.config import QwenVisionConfig
from holotron.model.grids import Grid
from holotron.model.patch_layout import PatchLayout
from holotron.model.vision import VisionBlock, pixel_shuffle, vision_norm

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

    def forward(self, image_PW: Tensor, grid: Grid) -> Tensor:
        if self.together:
            shuffled = self.norm(pixel_shuffle(image_PW, grid))
        else:
            shuffled = pixel_shuffle(self.norm(image_PW), grid)
        return self.down(F.gelu(self.up(shuffled)))


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
        split = self._embed_patches(patches).split([rows * columns for rows, columns in grids])
        tokens: list[Tensor] = [patches] * len(grids)
        for grid in dict.fromkeys(grids):
            members = [i for i, other in enumerate(grids) if other == grid]
            encoded = self._encode(torch.stack([split[i] for i in members]), grid)
            for i, image in zip(members, encoded, strict=True):
                tokens[i] = image
        return tokens

    def _embed_patches(self, patches_PV: Tensor) -> Tensor:
        weight = self.patch_embed.weight
        shown = patches_PV.to(weight.dtype).view(-1, 3, 1, self.config.patch_size**2).expand(-1, -1, FRAMES, -1)
        return F.linear(shown.flatten(1), weight.flatten(1), self.patch_embed.bias)

    def _encode(self, x_IPW: Tensor, grid: Grid) -> list[Tensor]:
        config = self.config
        window = None if config.window_size is None else config.window_size // config.patch_size
        windowed = PatchLayout.build(grid, config.width // config.heads, window, x_IPW.device, x_IPW.dtype)
        whole = windowed.whole()
        if self.position_table is not None:
            x_IPW = x_IPW + self.positions(grid).to(x_IPW.dtype)
        x_IPW = x_IPW[:, windowed.order_P]
        back_P = windowed.order_P.argsort()
        features: list[list[Tensor]] = []
        for number, block in enumerate(self.blocks):
            x_IPW = block(x_IPW, layout=whole if number in config.full_attention else windowed)
            if number in config.deepstack:
                merger = self.deepstack[config.deepstack.index(number)]
                features.append([merger(image_PW[back_P], grid) for image_PW in x_IPW])
        first = [self.merger(image_PW[back_P], grid) for image_PW in x_IPW]
        return [torch.cat(parts, dim=1) for parts in zip(first, *features, strict=True)]

    def positions(self, grid: Grid) -> Tensor:
        """Position embeddings [rows·columns, width]: the table stretched so that its corners lie on the image's."""
        assert self.position_table is not None
        side = self.config.table_side
        wide = torch.promote_types(self.position_table.dtype, torch.float32)
        table = self.position_table.to(wide).view(1, side, side, -1).permute(0, 3, 1, 2)
        return F.interpolate(table, size=grid, mode="bilinear", align_corners=True)[0].flatten(1).T
