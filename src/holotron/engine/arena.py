"""Host memory that sessions are copied to, pinned where a GPU copies to it, handed out in blocks of one size."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

log = logging.getLogger(__name__)

# Pinned memory is taken in pieces of this size, when it is first needed: pinning a GiB takes a third of a second.
# A power of two, because torch rounds pinned memory up to one.
CHUNK_BYTES = 2**30


class Arena:
    """Blocks of equal size, so that no room is ever lost between two of them."""

    def __init__(self, size: int, block_size: int, *, pinned: bool = False) -> None:
        self.block_size = block_size
        self.blocks = size // block_size
        self._pinned = pinned
        self._per_chunk = max(1, CHUNK_BYTES // block_size)
        self._chunks: dict[int, Tensor] = {}
        self._free = list(reversed(range(self.blocks)))  # the first is taken first

    def blocks_for(self, nbytes: int) -> int:
        return -(-nbytes // self.block_size)

    def allocate(self, nbytes: int) -> list[int] | None:
        """Blocks for so many bytes, or None where there are not enough."""
        needed = self.blocks_for(nbytes)
        while needed <= len(self._free):
            taken = self._free[len(self._free) - needed :]
            missing = {block // self._per_chunk for block in taken} - self._chunks.keys()
            if all(self._add_chunk(chunk) for chunk in missing):
                del self._free[len(self._free) - needed :]
                return taken
        return None

    def release(self, blocks: list[int]) -> None:
        self._free += blocks
        assert len(self._free) <= self.blocks, "blocks were released twice"

    def views(self, blocks: list[int], nbytes: int) -> list[Tensor]:
        """The blocks' bytes, in order, the last one cut so that they are `nbytes` together."""
        rows = [self._chunks[block // self._per_chunk][block % self._per_chunk] for block in blocks]
        if rows:
            rows[-1] = rows[-1][: nbytes - self.block_size * (len(rows) - 1)]
        return rows

    def _add_chunk(self, chunk: int) -> bool:
        """Take memory for a chunk; if the machine has none left, the arena is smaller from now on."""
        count = min(self._per_chunk, self.blocks - chunk * self._per_chunk)
        try:
            memory = torch.empty(count, self.block_size, dtype=torch.uint8, pin_memory=self._pinned)
        except (RuntimeError, MemoryError) as error:
            self._free = [block for block in self._free if block // self._per_chunk != chunk]
            self.blocks -= count
            log.warning(
                "no host memory for more offloaded sessions (%s); going on with %d MiB of it",
                str(error).splitlines()[0],
                self.blocks * self.block_size >> 20,
            )
            return False
        self._chunks[chunk] = memory
        return True
