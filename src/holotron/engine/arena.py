"""Host memory that sessions are copied to, pinned where a GPU copies to it, handed out in blocks of one size."""

from __future__ import annotations

import torch
from torch import Tensor


class Arena:
    """Blocks of equal size, so that no room is ever lost between two of them.

    Pinning memory is slow, so it is done once, at the first use, and not per copy.
    """

    def __init__(self, size: int, block_size: int, *, pinned: bool = False) -> None:
        self.block_size = block_size
        self.blocks = size // block_size
        self._pinned = pinned
        self._memory: Tensor | None = None
        self._free = list(range(self.blocks))

    def blocks_for(self, nbytes: int) -> int:
        return -(-nbytes // self.block_size)

    def allocate(self, nbytes: int) -> list[int] | None:
        """Blocks for so many bytes, or None where there are not enough."""
        needed = self.blocks_for(nbytes)
        if needed > len(self._free):
            return None
        taken = self._free[len(self._free) - needed :]
        del self._free[len(self._free) - needed :]
        return taken

    def release(self, blocks: list[int]) -> None:
        self._free += blocks
        assert len(self._free) <= self.blocks, "blocks were released twice"

    def views(self, blocks: list[int], nbytes: int) -> list[Tensor]:
        """The blocks' bytes, in order, the last one cut so that they are `nbytes` together."""
        if self._memory is None:
            self._memory = torch.empty(self.blocks, self.block_size, dtype=torch.uint8, pin_memory=self._pinned)
        rows = [self._memory[block] for block in blocks]
        if rows:
            rows[-1] = rows[-1][: nbytes - self.block_size * (len(rows) - 1)]
        return rows
