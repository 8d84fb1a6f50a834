"""Weights that trainers send: kept beside the model until all have come, then taken in one step."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from holotron.engine.engine import Engine
from holotron.engine.errors import EngineError
from holotron.engine.weight_group import TransferFailed, WeightGroup
from holotron.engine.weight_spec import GroupAddress, TensorSpec
from holotron.engine.weights import NewWeights, join_weights, read_weights

SECONDS = 300.0  # that a trainer may take to join a group, or to send the next tensor


class WeightReceiver:
    """The groups of one engine, and what came over them. Until `commit` the engine knows nothing of it."""

    def __init__(self, engine: Engine, seconds: float = SECONDS) -> None:
        self._engine = engine
        self._seconds = seconds
        self._groups: dict[str, WeightGroup] = {}
        self._parts: list[NewWeights] = []
        self._senders: set[str] = set()
        self._lock = threading.Lock()  # a transfer at a time

    def join(self, address: GroupAddress) -> None:
        """Join a group, in place of the one of that name. What an earlier one left unfinished is forgotten."""
        with self._lock:
            self._leave(address.name)
            self._discard()
        # Not under the lock: several servers may be asked for several groups, each in another order.
        group = WeightGroup(address, self._engine.model.device, self._seconds)
        with self._lock:
            self._groups[address.name] = group

    def leave(self, name: str) -> None:
        with self._lock:
            self._group(name)
            self._leave(name)

    def receive(self, name: str, specs: Sequence[TensorSpec], packed: bool = False, most: int | None = None) -> None:
        """Take tensors that a group's trainer sends now; on an error all that came since the last commit is forgotten.

        Names are those that `read_weights` knows. packed: as bytes in buffers of about `most`.
        """
        with self._lock:
            group = self._group(name)
            self._senders.add(name)
            try:
                came = dict(group.receive_packed(specs, most) if packed else group.receive(specs))
                part = read_weights(self._engine.model, came)
            except Exception as error:
                self._discard()
                if isinstance(error, TransferFailed):
                    self._leave(name)
                raise
            # In host memory: the device's is the sessions'.
            tensors = tuple((name, place, tensor.cpu()) for name, place, tensor in part.tensors)
            self._parts.append(replace(part, tensors=tensors))

    def stage(self, weights: NewWeights) -> None:
        """Keep weights that were read from files until `commit`, in place of what came before."""
        with self._lock:
            self._discard()
            self._parts.append(weights)

    def commit(self, epoch: int) -> bool:
        """Let the engine have what came, between two steps; whether those were all weights.

        TransferFailed, and nothing changes, where a trainer has died since: it may have had more to send.
        """
        with self._lock:
            if gone := [name for name in self._senders if not self._groups[name].is_alive()]:
                count = sum(len(part.tensors) for part in self._parts)
                self._discard()
                for name in gone:
                    self._leave(name)
                raise TransferFailed(f"the trainer of group {gone[0]!r} is gone after {count} tensors; none is used")
            weights = join_weights(self._engine.model, self._parts)
            self._engine.update_weights(weights, epoch=epoch)
            self._discard()
            return weights.whole

    def discard(self) -> None:
        """Forget what came since the last commit."""
        with self._lock:
            self._discard()

    def close(self) -> None:
        for name in list(self._groups):
            self._leave(name)

    def _group(self, name: str) -> WeightGroup:
        if name not in self._groups:
            raise EngineError(f"there is no group {name!r}; open it first")
        return self._groups[name]

    def _leave(self, name: str) -> None:
        if group := self._groups.pop(name, None):
            group.close()
        self._senders.discard(name)

    def _discard(self) -> None:
        self._parts = []
        self._senders.clear()
