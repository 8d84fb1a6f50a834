"""Sessions that are not on the device: copies of their memory in host memory, then on disk, under budgets.

Nothing here is precious. A copy that does not fit, cannot be written or comes back damaged is lost, and the session is
computed again from its tokens.
"""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from holotron.engine.arena import Arena, Range
from holotron.model.batch import Memory

log = logging.getLogger(__name__)

Copies = dict[str, Tensor]


@dataclass(eq=False)
class Parked:
    """The memory of one session away from the device. It is in `copies`, or in `path`, or lost."""

    nbytes: int
    copies: Copies | None
    held: Range | None = None
    path: Path | None = None
    reading: Future[Copies | None] | None = field(default=None, repr=False)

    @property
    def on_disk(self) -> bool:
        return self.copies is None and self.path is not None

    @property
    def lost(self) -> bool:
        return self.copies is None and self.path is None


class Spill:
    """Host memory first, least recently parked to disk when that is full."""

    def __init__(self, memory: Memory, host_bytes: int, disk_bytes: int = 0, folder: Path | None = None) -> None:
        self.memory = memory
        self._arena = Arena(host_bytes, pinned=memory.ssm_VMHPN.is_cuda)
        self._disk_bytes = disk_bytes
        self._folder = folder
        self._on_host: OrderedDict[Parked, None] = OrderedDict()
        self._worker: ThreadPoolExecutor | None = None
        self.host_used = 0
        self.disk_used = 0
        self.spilled_bytes = 0
        self.restored_bytes = 0
        self.lost = 0

    # ---- to the host ----

    def park(self, slot: int, pages: list[int]) -> Parked | None:
        """A copy of that slot and those pages, or None where there is no room anywhere."""
        sources = self._sources(slot, pages)
        nbytes = sum(tensor.nbytes for tensor in sources.values())
        held = self._make_room(nbytes)
        if held is None:
            return self._park_on_disk(sources, nbytes)
        copies = self._arena.views(held, sources)
        for name, tensor in sources.items():
            copies[name].copy_(tensor, non_blocking=True)
        parked = Parked(nbytes, copies, held)
        self._on_host[parked] = None
        self.host_used += nbytes
        self.spilled_bytes += nbytes
        return parked

    def restore(self, parked: Parked, slot: int, pages: list[int]) -> bool:
        """Copy back into a slot and as many pages; False if the copy turned out to be lost."""
        copies = self._fetched(parked)
        if copies is None:
            self.forget(parked)
            return False
        memory = self.memory
        index = torch.tensor(pages, dtype=torch.long, device=memory.keys_ANKZD.device)
        memory.ssm_VMHPN[slot].copy_(copies["ssm"], non_blocking=True)
        memory.conv_VMCJ[slot].copy_(copies["conv"], non_blocking=True)
        for name, pool in (("keys", memory.keys_ANKZD), ("values", memory.values_ANKZD)):
            staged = copies[name].to(pool.device, non_blocking=True)
            as_bytes(pool).index_copy_(1, index, as_bytes(staged))
        self.restored_bytes += parked.nbytes
        self.forget(parked)
        return True

    def forget(self, parked: Parked) -> None:
        """Free what a copy takes."""
        if parked.reading is not None:
            parked.reading.exception()  # waits; whatever it brings, nobody needs it any more
            parked.reading = None
        if parked.copies is not None and parked.held is not None:
            self._release_host(parked)
        if parked.path is not None:
            parked.path.unlink(missing_ok=True)
            self.disk_used -= parked.nbytes
        parked.copies = parked.path = None

    def _sources(self, slot: int, pages: list[int]) -> Copies:
        memory = self.memory
        index = torch.tensor(pages, dtype=torch.long, device=memory.keys_ANKZD.device)
        return {
            "ssm": memory.ssm_VMHPN[slot],
            "conv": memory.conv_VMCJ[slot],
            "keys": as_bytes(memory.keys_ANKZD).index_select(1, index).view(memory.keys_ANKZD.dtype),
            "values": as_bytes(memory.values_ANKZD).index_select(1, index).view(memory.values_ANKZD.dtype),
        }

    def _make_room(self, nbytes: int) -> Range | None:
        """Room in host memory, moving the least recently parked to disk or giving them up for it."""
        if nbytes > self._arena.size:
            return None
        while (held := self._arena.allocate(nbytes)) is None:
            oldest = next(iter(self._on_host))
            if not self._move_to_disk(oldest):
                self._give_up(oldest)
        return held

    def _release_host(self, parked: Parked) -> None:
        assert parked.held is not None
        self._arena.release(parked.held)
        self._on_host.pop(parked, None)
        self.host_used -= parked.nbytes
        parked.copies = parked.held = None

    def _give_up(self, parked: Parked) -> None:
        self.lost += 1
        self._release_host(parked)

    # ---- to the disk ----

    def prefetch(self, parked: Parked) -> bool:
        """Start reading a copy from disk if that is where it is; True once it can be restored without waiting."""
        if not parked.on_disk:
            return True
        if parked.reading is None:
            parked.reading = self._pool().submit(_read, parked.path)
        return parked.reading.done()

    def close(self) -> None:
        """Finish what is being read and remove what was written."""
        if self._worker is not None:
            self._worker.shutdown(wait=True)
        if self._folder is not None:
            for path in self._folder.glob("session-*.safetensors*"):
                path.unlink(missing_ok=True)

    def _move_to_disk(self, parked: Parked) -> bool:
        if self._folder is None or self.disk_used + parked.nbytes > self._disk_bytes:
            return False
        assert parked.copies is not None
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # the copy to host memory may still be under way
        path = self._write(parked.copies)
        if path is None:
            return False
        self._release_host(parked)
        parked.path = path
        self.disk_used += parked.nbytes
        return True

    def _park_on_disk(self, sources: Copies, nbytes: int) -> Parked | None:
        if self._folder is None or self.disk_used + nbytes > self._disk_bytes:
            self.lost += 1
            return None
        path = self._write({name: tensor.cpu() for name, tensor in sources.items()})
        if path is None:
            self.lost += 1
            return None
        self.disk_used += nbytes
        self.spilled_bytes += nbytes
        return Parked(nbytes, None, path=path)

    def _write(self, copies: Copies) -> Path | None:
        assert self._folder is not None
        path = self._folder / f"session-{uuid.uuid4().hex}.safetensors"
        partial = path.with_suffix(".safetensors.partial")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            save_file({name: tensor.contiguous() for name, tensor in copies.items()}, partial)
            partial.rename(path)
        except (OSError, SafetensorError) as error:
            log.warning("a session could not be written to %s (%s); it will be computed again", path.parent, error)
            partial.unlink(missing_ok=True)
            return None
        return path

    def _fetched(self, parked: Parked) -> Copies | None:
        if parked.copies is not None:
            return parked.copies
        if parked.path is None:
            return None
        if parked.reading is None:
            return _read(parked.path)
        copies = parked.reading.result()
        parked.reading = None
        return copies

    def _pool(self) -> ThreadPoolExecutor:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="spill")
        return self._worker


def _read(path: Path | None) -> Copies | None:
    assert path is not None
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        log.warning("a session could not be read back from %s (%s); it will be computed again", path, error)
        return None


def as_bytes(tensor: Tensor) -> Tensor:
    """The same memory as bytes: indexing is not defined for 8-bit floats."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor
