"""A process group with a trainer, over which tensors come: `torch.distributed` over TCP, as RL stacks open it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import distributed_c10d as c10d
from torch.distributed.rendezvous import rendezvous

from holotron.engine.errors import EngineError
from holotron.engine.weight_spec import GroupAddress, TensorSpec


class TransferFailed(EngineError):
    """The trainer is gone, too slow, or sends something else than it announced."""


class WeightGroup:
    """This process's place in a group. Nothing waits longer than `seconds`; what fails ends the group."""

    def __init__(self, address: GroupAddress, device: torch.device, seconds: float) -> None:
        suited = "nccl" if device.type == "cuda" else "gloo"
        self.address = address = replace(address, backend=address.backend or suited)
        on_device = address.backend == "nccl"
        if on_device and device.type != "cuda":
            raise EngineError(f"the backend nccl needs a GPU, and this engine runs on {device}; use gloo")
        self.device = device if on_device else torch.device("cpu")
        self._seconds = seconds
        try:
            self._store, self._group = (_open_last if address.trainer else _open)(address, timedelta(seconds=seconds))
        except (RuntimeError, ValueError, OSError) as error:
            problem = f"the group {address.name!r} could not be joined at {address.host}:{address.port}"
            raise TransferFailed(f"{problem}: {_first(error)}") from error

    def receive(self, specs: Sequence[TensorSpec]) -> Iterator[tuple[str, Tensor]]:
        """Tensors, each in a broadcast of its own."""
        for spec in specs:
            tensor = spec.empty(self.device)
            self._broadcast(tensor, spec.name)
            yield spec.name, tensor

    def receive_packed(self, specs: Sequence[TensorSpec], most: int | None = None) -> Iterator[tuple[str, Tensor]]:
        """Tensors as bytes behind one another. A buffer ends after the tensor with which it has more than `most`."""
        begin = 0
        while begin < len(specs):
            end, size = begin, 0
            while end < len(specs) and (most is None or size <= most):
                size += specs[end].bytes
                end += 1
            buffer = torch.empty(size, dtype=torch.uint8, device=self.device)
            self._broadcast(buffer, f"{specs[begin].name} and {end - begin - 1} more")
            place = 0
            for spec in specs[begin:end]:
                # Cloned, or what follows a tensor with an odd number of bytes could not be read as numbers.
                data = buffer[place : place + spec.bytes].clone()
                place += spec.bytes
                yield spec.name, data.view(spec.torch_dtype).view(spec.shape)
            begin = end

    def is_alive(self) -> bool:
        """Whether the trainer's store still answers."""
        try:
            self._store.num_keys()
        except RuntimeError:
            return False
        return True

    def close(self) -> None:
        close_group(self._group, self.address.backend)
        self._store = self._group = None

    def _broadcast(self, tensor: Tensor, what: str) -> None:
        try:
            work = self._group.broadcast(tensor, self.address.trainer)
            deadline = time.monotonic() + self._seconds
            while self.device.type == "cuda" and not work.is_completed():  # wait() would only order streams
                if time.monotonic() > deadline:
                    raise RuntimeError(f"nothing came for {self._seconds:.0f} s")
                time.sleep(0.0005)
            work.wait()
            if self.address.trainer:
                self._group.barrier().wait()
        except (RuntimeError, ValueError) as error:
            raise TransferFailed(f"{what} did not come from the trainer: {_first(error)}") from error


def _open(address: GroupAddress, limit: timedelta) -> tuple[Any, Any]:
    """The trainer's store, and a group beside the default one."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    place = f"tcp://{host}:{address.port}"
    store, _, _ = next(rendezvous(place, address.rank, address.world_size, timeout=limit))
    store.set_timeout(limit)
    return store, open_group(address.name, store, address.rank, address.world_size, address.backend, limit)


def open_group(name: Any, store: Any, rank: int, size: int, backend: str, limit: timedelta) -> Any:
    """With the keys that peers expect: SGLang and the trainers call the same function of torch's."""
    if backend == "nccl":
        # Or a watchdog would end this process where the other end does not answer.
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    how, named = c10d.Backend(backend), c10d.PrefixStore(name, store)
    group, _ = c10d._new_process_group_helper(size, rank, [], how, named, group_name=name, timeout=limit)
    c10d._world.pg_group_ranks[group] = {each: each for each in range(size)}
    return group


def close_group(group: Any, backend: str) -> None:
    with suppress(RuntimeError, ValueError):
        if backend == "nccl":
            group.abort()  # destroying it would wait for what a dead trainer never sends
        c10d.destroy_process_group(group)  # ValueError for one of `_open_last`, which torch does not know


def _open_last(address: GroupAddress, limit: timedelta) -> tuple[Any, Any]:
    """A group whose last rank is the trainer, as TRL opens it where it has no NCCL of vLLM's.

    Rank 0, which holds the store, is a server. After each broadcast all meet.
    """
    distributed: Any = torch.distributed
    store = distributed.TCPStore(address.host, address.port, address.world_size, not address.rank, limit)
    named = c10d.PrefixStore("client2server", store)
    if address.backend == "gloo":
        return store, c10d.ProcessGroupGloo(named, address.rank, address.world_size, limit)
    options = c10d.ProcessGroupNCCL.Options()
    options._timeout = limit
    return store, c10d.ProcessGroupNCCL(named, address.rank, address.world_size, options)


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
