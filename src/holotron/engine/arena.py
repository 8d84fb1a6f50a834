"""One block of host memory, pinned where a GPU copies to it, handed out in ranges."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ALIGNMENT = 256


@dataclass(frozen=True)
class Range:
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


class Arena:
    """First fit over sorted free ranges. Pinning memory is slow, so it is done once and not per copy."""

    def __init__(self, size: int, *, pinned: bool = False) -> None:
        self.size = size // ALIGNMENT * ALIGNMENT
        self._pinned = pinned
        self._block: Tensor | None = None
        self._free = [Range(0, self.size)] if self.size else []

    def allocate(self, nbytes: int) -> Range | None:
        size = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        for i, free in enumerate(self._free):
            if free.size >= size:
                rest = Range(free.start + size, free.size - size)
                self._free[i : i + 1] = [rest] if rest.size else []
                return Range(free.start, size)
        return None

    def release(self, taken: Range) -> None:
        at = next((i for i, free in enumerate(self._free) if free.start > taken.start), len(self._free))
        before = self._free[at - 1] if at else None
        after = self._free[at] if at < len(self._free) else None
        assert before is None or before.end <= taken.start, f"{taken} was released twice"
        assert after is None or taken.end <= after.start, f"{taken} was released twice"
        start, end, low, high = taken.start, taken.end, at, at
        if before is not None and before.end == start:
            start, low = before.start, at - 1
        if after is not None and after.start == end:
            end, high = after.end, at + 1
        self._free[low:high] = [Range(start, end - start)]

    def views(self, held: Range, like: dict[str, Tensor]) -> dict[str, Tensor]:
        """Tensors shaped like those, one after another in a range that is large enough."""
        if self._block is None:
            self._block = torch.empty(self.size, dtype=torch.uint8, pin_memory=self._pinned)
        views: dict[str, Tensor] = {}
        start = held.start
        for name, tensor in like.items():
            views[name] = self._block[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            start += tensor.nbytes
        assert start <= held.end
        return views
