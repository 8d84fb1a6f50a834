"""Who owns which slot of state and which page of keys and values. Counts only: the tensors are in Memory."""

from __future__ import annotations

from collections.abc import Iterable


class StatePool:
    """Slots of state. Slot 0 is scratch: padded rows of a batch write there."""

    def __init__(self, slots: int) -> None:
        self.size = slots
        self._free = list(range(slots - 1, 0, -1))
        self._used: set[int] = set()

    @property
    def free(self) -> int:
        return len(self._free)

    def acquire(self) -> int | None:
        if not self._free:
            return None
        slot = self._free.pop()
        self._used.add(slot)
        return slot

    def release(self, slot: int) -> None:
        self._used.remove(slot)  # a KeyError here is a slot released twice
        self._free.append(slot)


class PagePool:
    """Pages with reference counts: forked sessions share them until one writes. Page 0 is scratch."""

    def __init__(self, pages: int) -> None:
        self.size = pages
        self._free = list(range(pages - 1, 0, -1))
        self._references = [0] * pages

    @property
    def free(self) -> int:
        return len(self._free)

    def acquire(self, count: int) -> list[int] | None:
        """That many pages, or None and nothing changes."""
        if count > len(self._free):
            return None
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._references[page] = 1
        return pages

    def share(self, pages: Iterable[int]) -> None:
        for page in pages:
            assert self._references[page] > 0, f"page {page} is free and cannot be shared"
            self._references[page] += 1

    def is_shared(self, page: int) -> bool:
        return self._references[page] > 1

    def release(self, pages: Iterable[int]) -> None:
        for page in pages:
            self._references[page] -= 1
            assert self._references[page] >= 0, f"page {page} was released more often than it was taken"
            if self._references[page] == 0:
                self._free.append(page)
