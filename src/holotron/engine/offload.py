"""Sessions that are not on the device: copies of their memory in host memory, then on disk, under budgets.

Losing a copy is no error. One that does not fit, cannot be written or comes back damaged is lost, and the session is
computed again from its tokens.
"""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from holotron.engine.arena import Arena
from holotron.model.batch import Memory

log = logging.getLogger(__name__)

SMALLEST_BLOCK = 4096


@dataclass(eq=False)
class OffloadedSession:
    """The memory of one session away from the device, as bytes. It is in `blocks`, or in `path`, or lost."""

    nbytes: int
    blocks: list[int] | None
    path: Path | None = None
    reading: Future[Tensor | None] | None = field(default=None, repr=False)

    @property
    def on_disk(self) -> bool:
        return self.blocks is None and self.path is not None

    @property
    def lost(self) -> bool:
        return self.blocks is None and self.path is None


class Arrival:
    """A copy to the device that may still be under way, beside the work there."""

    def __init__(self, event: torch.cuda.Event | None) -> None:
        self._event = event

    @property
    def done(self) -> bool:
        return self._event is None or self._event.query()

    def wait(self) -> None:
        """Let the device's next work begin after the copy."""
        if self._event is not None:
            self._event.wait()

    def synchronize(self) -> None:
        """Wait until the copy is done."""
        if self._event is not None:
            self._event.synchronize()


class OffloadStore:
    """Host memory first, least recently saved to disk when that is full.

    On a GPU all copies run on one stream of their own, beside the model and in the order they were asked for: what
    reuses a block of host memory comes after what was copied from it.
    """

    def __init__(self, memory: Memory, host_bytes: int, disk_bytes: int = 0, folder: Path | None = None) -> None:
        self.memory = memory
        on_gpu = memory.ssm_VMHPN.is_cuda
        block = max(SMALLEST_BLOCK, memory.slot_bytes // 4, memory.page_bytes)
        self._arena = Arena(host_bytes, -(-block // 256) * 256, pinned=on_gpu)
        self._stream = torch.cuda.Stream(memory.ssm_VMHPN.device) if on_gpu else None
        self._disk_bytes = disk_bytes
        self._folder = folder
        self._on_host: OrderedDict[OffloadedSession, None] = OrderedDict()
        self._worker: ThreadPoolExecutor | None = None
        self.host_used = 0
        self.disk_used = 0
        self.offloaded_bytes = 0
        self.restored_bytes = 0

    # ---- to the host ----

    def save(self, slot: int, pages: list[int]) -> OffloadedSession | None:
        """A copy of that slot and those pages, or None where there is no room anywhere."""
        flat = self._gather(slot, pages)
        blocks = self._make_room(flat.nbytes)
        if blocks is None:
            return self._save_to_disk(flat)
        with self._aside(flat):
            for view, piece in self._pieces(blocks, flat):
                view.copy_(piece, non_blocking=True)
        offloaded = OffloadedSession(flat.nbytes, blocks)
        self._on_host[offloaded] = None
        self.host_used += flat.nbytes
        self.offloaded_bytes += flat.nbytes
        return offloaded

    def restore(self, offloaded: OffloadedSession, slot: int, pages: list[int]) -> Arrival | None:
        """Begin to copy back into a slot and as many pages; None if the copy turned out to be lost."""
        from_disk = self._fetched(offloaded) if offloaded.on_disk else None
        if offloaded.blocks is None and from_disk is None:
            self.free(offloaded)
            return None
        index = self._index(pages)
        flat = torch.empty(offloaded.nbytes, dtype=torch.uint8, device=self.memory.ssm_VMHPN.device)
        with self._aside(flat, index):
            if from_disk is not None:
                flat.copy_(from_disk)
            else:
                assert offloaded.blocks is not None
                for view, piece in self._pieces(offloaded.blocks, flat):
                    piece.copy_(view, non_blocking=True)
            self._scatter(flat, slot, index)
        self.restored_bytes += offloaded.nbytes
        self.free(offloaded)
        return self.copied()

    def reserve(self, nbytes: int) -> OffloadedSession | None:
        """Host memory for a copy that comes from elsewhere, held until `release_hold`; None where there is none.

        It may be written once `copied` has happened.
        """
        blocks = self._make_room(nbytes)
        if blocks is None:
            return None
        self.host_used += nbytes
        return OffloadedSession(nbytes, blocks)

    def hold(self, offloaded: OffloadedSession) -> None:
        """Let a copy not be given up for others: it is being sent."""
        self._on_host.pop(offloaded, None)

    def release_hold(self, offloaded: OffloadedSession) -> None:
        if offloaded.blocks is not None:
            self._on_host[offloaded] = None

    def views(self, offloaded: OffloadedSession) -> list[Tensor] | None:
        """The bytes of a copy, in order, to be read or filled while it is held; None if it is lost.

        Those of a copy on its way to the host are there after `copied`.
        """
        if offloaded.blocks is not None:
            return self._arena.views(offloaded.blocks, offloaded.nbytes)
        flat = None if offloaded.path is None else _read(offloaded.path, offloaded.nbytes)
        return None if flat is None else [flat]

    def copied(self) -> Arrival:
        """What has been asked for until now."""
        if self._stream is None:
            return Arrival(None)
        event = torch.cuda.Event()
        event.record(self._stream)
        return Arrival(event)

    def free(self, offloaded: OffloadedSession) -> None:
        """Free what a copy takes."""
        if offloaded.reading is not None:
            offloaded.reading.exception()  # waits; what it brings is not needed any more
            offloaded.reading = None
        if offloaded.blocks is not None:
            self._release_host(offloaded)
        if offloaded.path is not None:
            offloaded.path.unlink(missing_ok=True)
            self.disk_used -= offloaded.nbytes
        offloaded.path = None

    def _gather(self, slot: int, pages: list[int]) -> Tensor:
        """The bytes of a session in one piece: its state, then its keys and its values."""
        memory, index = self.memory, self._index(pages)
        nbytes = memory.slot_bytes + len(pages) * memory.page_bytes
        flat = torch.empty(nbytes, dtype=torch.uint8, device=memory.ssm_VMHPN.device)
        ssm, conv, keys, values = self._parts(flat, len(pages))
        ssm.copy_(memory.ssm_VMHPN[slot])
        conv.copy_(memory.conv_VMCJ[slot])
        torch.index_select(as_bytes(memory.keys_ANKZD), 1, index, out=keys)
        torch.index_select(as_bytes(memory.values_ANKZD), 1, index, out=values)
        return flat

    def _scatter(self, flat: Tensor, slot: int, index: Tensor) -> None:
        memory = self.memory
        ssm, conv, keys, values = self._parts(flat, len(index))
        memory.ssm_VMHPN[slot].copy_(ssm)
        memory.conv_VMCJ[slot].copy_(conv)
        as_bytes(memory.keys_ANKZD).index_copy_(1, index, keys)
        as_bytes(memory.values_ANKZD).index_copy_(1, index, values)

    def _parts(self, flat: Tensor, pages: int) -> list[Tensor]:
        """Views of a session's bytes, shaped like what they hold."""
        memory = self.memory
        pools = [as_bytes(pool) for pool in (memory.keys_ANKZD, memory.values_ANKZD)]
        shapes = [memory.ssm_VMHPN.shape[1:], memory.conv_VMCJ.shape[1:]]
        shapes += [torch.Size((len(pool), pages, *pool.shape[2:])) for pool in pools]
        parts, start = [], 0
        for like, shape in zip((memory.ssm_VMHPN, memory.conv_VMCJ, *pools), shapes, strict=True):
            end = start + shape.numel() * like.itemsize
            parts.append(flat[start:end].view(like.dtype).view(shape))
            start = end
        assert start == len(flat)
        return parts

    def _index(self, pages: list[int]) -> Tensor:
        index = torch.tensor(pages, dtype=torch.long)
        # A copy from pinned memory keeps no thread waiting.
        return index if self._stream is None else index.pin_memory().to(self._stream.device, non_blocking=True)

    @contextmanager
    def _aside(self, *used: Tensor) -> Iterator[None]:
        """On a GPU: what happens inside happens beside the model's work, after what was asked for before."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield
        for tensor in used:
            tensor.record_stream(self._stream)  # its memory is not reused before

    def _pieces(self, blocks: list[int], flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Each block of host memory with the bytes that belong there."""
        return zip(self._arena.views(blocks, flat.nbytes), flat.split(self._arena.block_size), strict=True)

    def _make_room(self, nbytes: int) -> list[int] | None:
        """Room in host memory, moving the least recently offloaded to disk or giving them up for it."""
        while (blocks := self._arena.allocate(nbytes)) is None:
            if self._arena.blocks_for(nbytes) > self._arena.blocks:
                return None
            oldest = next(iter(self._on_host))
            if not self._move_to_disk(oldest):
                self._release_host(oldest)
        return blocks

    def _release_host(self, offloaded: OffloadedSession) -> None:
        assert offloaded.blocks is not None
        self._arena.release(offloaded.blocks)
        self._on_host.pop(offloaded, None)
        self.host_used -= offloaded.nbytes
        offloaded.blocks = None

    # ---- to the disk ----

    def prefetch(self, offloaded: OffloadedSession) -> bool:
        """Start reading a copy from disk if that is where it is; True once it can be restored without waiting."""
        if not offloaded.on_disk:
            return True
        if offloaded.reading is None:
            assert offloaded.path is not None
            offloaded.reading = self._pool().submit(_read, offloaded.path, offloaded.nbytes)
        return offloaded.reading.done()

    def close(self) -> None:
        """Finish what is being read and remove what was written."""
        if self._worker is not None:
            self._worker.shutdown(wait=True)
        if self._folder is not None:
            for path in self._folder.glob("session-*.safetensors*"):
                path.unlink(missing_ok=True)

    def _move_to_disk(self, offloaded: OffloadedSession) -> bool:
        if self._folder is None or self.disk_used + offloaded.nbytes > self._disk_bytes:
            return False
        assert offloaded.blocks is not None
        if self._stream is not None:
            self._stream.synchronize()  # the copy to host memory may still be under way
        path = self._write(torch.cat(self._arena.views(offloaded.blocks, offloaded.nbytes)))
        if path is None:
            return False
        self._release_host(offloaded)
        offloaded.path = path
        self.disk_used += offloaded.nbytes
        return True

    def _save_to_disk(self, flat: Tensor) -> OffloadedSession | None:
        if self._folder is None or self.disk_used + flat.nbytes > self._disk_bytes:
            return None
        path = self._write(flat.cpu())
        if path is None:
            return None
        self.disk_used += flat.nbytes
        self.offloaded_bytes += flat.nbytes
        return OffloadedSession(flat.nbytes, None, path)

    def _write(self, flat: Tensor) -> Path | None:
        assert self._folder is not None
        path = self._folder / f"session-{uuid.uuid4().hex}.safetensors"
        partial = path.with_suffix(".safetensors.partial")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            save_file({"memory": flat}, partial)
            partial.rename(path)
        except (OSError, SafetensorError) as error:
            log.warning("a session could not be written to %s (%s); it will be computed again", path.parent, error)
            partial.unlink(missing_ok=True)
            return None
        return path

    def _fetched(self, offloaded: OffloadedSession) -> Tensor | None:
        assert offloaded.path is not None
        reading, offloaded.reading = offloaded.reading, None
        return _read(offloaded.path, offloaded.nbytes) if reading is None else reading.result()

    def _pool(self) -> ThreadPoolExecutor:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="offload")
        return self._worker


def _read(path: Path, nbytes: int) -> Tensor | None:
    try:
        flat = load_file(path)["memory"]
    except (OSError, SafetensorError, KeyError) as error:
        log.warning("a session could not be read back from %s (%s); it will be computed again", path, error)
        return None
    if flat.dtype != torch.uint8 or flat.shape != (nbytes,):
        log.warning("a session read back from %s has the wrong size; it will be computed again", path)
        return None
    return flat


def as_bytes(tensor: Tensor) -> Tensor:
    """The same memory as bytes: indexing is not defined for 8-bit floats."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor
