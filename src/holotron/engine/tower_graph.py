"""The vision tower over small screenshots as CUDA graphs: launching it takes the host longer than computing it.

Shapes: I images, H/W pixel rows/columns, C colours, T tokens of an image, D width of their embeddings.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from holotron.model.grids import Grid
from holotron.model.model import Model
from holotron.model.tiling import patches_of_whole_images
from holotron.model.vision import VisionTower
from holotron.ops.recording import record

BUCKETS = (1, 2, 4, 8, 16, 32)  # images of a graph; those that are missing are whatever was there before
MOST_WIDTH = 512  # of a tower
MOST_PATCHES = 2048  # of an image
MOST_GRAPHS = 24

_Key = tuple[torch.Size, Grid, int]


class TowerGraphs:
    """Graphs of the sizes that are met again; one that is met for the first time is not worth recording."""

    def __init__(self, model: Model, enabled: bool = True) -> None:
        self._model = model
        # Large towers keep the device busy anyway; those of other kinds bring tables from the host while they run.
        is_small = isinstance(model.vision, VisionTower) and model.vision.config.width <= MOST_WIDTH
        self._enabled = enabled and model.device.type == "cuda" and is_small
        self._met: set[tuple[torch.Size, Grid]] = set()
        self._graphs: OrderedDict[_Key, TowerGraph] = OrderedDict()

    def clear(self) -> None:
        """Record again, after layers were replaced or moved."""
        self._graphs.clear()

    def takes(self, size: torch.Size, grid: Grid) -> bool:
        """Whether images of that size, in pixels [H, W, C], are encoded here."""
        if not self._enabled or grid[0] * grid[1] > MOST_PATCHES:
            return False
        if (size, grid) in self._met:
            return True
        if len(self._met) < MOST_GRAPHS:
            self._met.add((size, grid))
        return False

    def encode(self, images: Sequence[Tensor], grid: Grid) -> list[Tensor]:
        """Token embeddings of each of some images of one size, in 8 bits on the host."""
        tokens: list[Tensor] = []
        for first in range(0, len(images), BUCKETS[-1]):
            some = images[first : first + BUCKETS[-1]]
            count = next(size for size in BUCKETS if size >= len(some))
            tokens += self._graph((some[0].shape, grid, count)).replay(some)
        return tokens

    def _graph(self, key: _Key) -> TowerGraph:
        if key not in self._graphs:
            self._graphs[key] = TowerGraph(self._model, *key)
            if len(self._graphs) > MOST_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        return self._graphs[key]


class TowerGraph:
    """The way from pixels to token embeddings, for so many images of one size."""

    def __init__(self, model: Model, size: torch.Size, grid: Grid, count: int) -> None:
        self._model, self._grid = model, grid
        self._pixels_IHWC = torch.zeros(count, *size, dtype=torch.uint8, device=model.device)
        self._host_IHWC = torch.zeros(count, *size, dtype=torch.uint8).pin_memory()
        self._copied = torch.cuda.Event()
        self._graph, self._tokens_ITD = record(self._forward, self._forward)

    def _forward(self) -> Tensor:
        vision = self._model.config.vision
        assert vision is not None
        patches = patches_of_whole_images(self._pixels_IHWC, self._grid, vision)
        return torch.stack(self._model.encode_patches(patches, [self._grid] * len(self._pixels_IHWC)))

    def replay(self, images: Sequence[Tensor]) -> list[Tensor]:
        count = len(images)
        self._copied.synchronize()  # the copy of the last images must be done before its source is written again
        for place, image in zip(self._host_IHWC, images, strict=False):
            place.copy_(image)
        self._pixels_IHWC[:count].copy_(self._host_IHWC[:count], non_blocking=True)
        self._copied.record()
        self._graph.replay()
        return list(self._tokens_ITD[:count].clone().unbind())  # the next replay writes over it
