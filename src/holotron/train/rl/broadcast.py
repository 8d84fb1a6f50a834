"""Weights that go to servers over `torch.distributed`: in a group of two with each, so that none waits for another."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Thread
from typing import Any

import httpx
import torch
from torch import Tensor

from holotron.engine.weight_group import TransferFailed, close_group, open_group
from holotron.train.meter import TrainingError

QUICK, PATIENCE = 10.0, 60.0  # seconds for a server that has nothing to wait for, and for a tensor
Ask = Callable[[str, str, dict[str, Any], float], object]  # method, path, body and most seconds, of one server


@dataclass
class Broadcast:
    """Weights in host memory, for servers that come later, too. address: where those reach this process."""

    address: str
    device: torch.device
    weights: dict[str, Tensor] = field(default_factory=dict)

    def give(self, url: str, version: str, ask: Ask) -> None:
        """Have a server take the weights in one step; TransferFailed where they do not get there."""
        sender = WeightSender(url, self.address or _seen_from(url), self.device, list(self.weights.values()))
        # For this update alone: by the next, another server may have been started there. One that joins it leaves the
        # group of that name which a trainer that died has left.
        name = {"group_name": url}
        place = {"rank_offset": 1, "world_size": 2, "backend": sender.backend} | sender.place
        try:
            ask("POST", "/init_weights_update_group", name | place, QUICK)
            ask("POST", "/start_weight_update", {}, QUICK)
            for each, weight in self.weights.items():
                kind = {"dtypes": [str(weight.dtype)], "shapes": [list(weight.shape)]}
                ask("POST", "/update_weights_from_distributed", name | {"names": [each]} | kind, PATIENCE)
            ask("POST", "/finish_weight_update", {"weight_version": version}, PATIENCE)
            ask("POST", "/destroy_weights_update_group", name, QUICK)
        except TrainingError as error:
            if sender.problem is None:  # else it was refused because nothing came
                raise
            raise TransferFailed(f"the group with {url} broke: {sender.problem}") from error
        finally:
            sender.close()


class WeightSender(Thread):
    """Rank 0 of a group, in a thread of its own: NCCL may never come back from meeting a server that hangs."""

    def __init__(self, name: str, host: str, device: torch.device, tensors: Sequence[Tensor]) -> None:
        super().__init__(daemon=True)
        self._what, self._device, self._tensors = name, device, tensors
        self._group: Any = None
        self.backend = "nccl" if device.type == "cuda" else "gloo"
        self.problem: Exception | None = None
        self._limit, self._closed = timedelta(seconds=PATIENCE), False
        distributed: Any = torch.distributed
        try:
            self._store = distributed.TCPStore(host, 0, 2, True, self._limit, wait_for_workers=False)
        except (RuntimeError, ValueError) as error:
            raise TrainingError(f"no group can meet at {host}; change address of [rollout]: {error}") from error
        self.place = {"master_address": host, "master_port": self._store.port}
        self.start()

    def run(self) -> None:
        try:
            self._group = group = open_group(self._what, self._store, 0, 2, self.backend, self._limit)
            for tensor in () if self._closed else self._tensors:
                group.broadcast(tensor.to(self._device).contiguous(), 0).wait()
                if self._device.type == "cuda":  # which has no room for all of them
                    torch.cuda.current_stream(self._device).synchronize()
        except Exception as error:
            self.problem = error
        if self._closed:  # meanwhile
            self.close()

    def close(self) -> None:
        self._closed = True
        if self._group is not None:
            close_group(self._group, self.backend)


def _seen_from(url: str) -> str:
    """This machine's address on its way to a server."""
    place = httpx.URL(url)
    family, kind, _, _, address = socket.getaddrinfo(place.host, place.port or 80, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # nothing is sent
        return str(probe.getsockname()[0])
