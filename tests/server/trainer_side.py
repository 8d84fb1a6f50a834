"""The other end of a server's weight updates: what trainers hold, and the group over which they send it."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed import distributed_c10d as c10d
from torch.distributed.rendezvous import rendezvous

from holotron.engine.token_sampler import TokenSampler
from holotron.engine.weights import weight_checksums
from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.text.byte_tokenizer import byte_tokenizer

PATIENCE = 60.0


class Policy:
    """A checkpoint as a trainer knows it: tensors under the names of the files, and what a plain forward gives."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        (file,) = folder.glob("*.safetensors")
        self.tensors = load_file(file)
        self.model = load_checkpoint(folder, "cpu")
        self.checksums = weight_checksums(self.model)

    def score(self, ids: Sequence[int], count: int, temperature: float | None = None) -> list[float]:
        """The log-probabilities of the last so many tokens: the model's own, or as drawn with a temperature.

        Tokens of image markup and ids that are no token are never drawn.
        """
        with torch.inference_mode():
            (logits,) = self.model.score([list(ids)])
        logits = logits.float()
        if temperature is not None:
            banned = TokenSampler(self.model.config, byte_tokenizer(self.model.config)).banned
            logits = logits.index_fill(1, banned, -math.inf) / temperature
        known = logits.log_softmax(-1)[range(len(ids) - 1), list(ids)[1:]]
        return known.tolist()[-count:]

    def buckets(self, count: int) -> list[dict[str, Tensor]]:
        names = list(self.tensors)
        return [{name: self.tensors[name] for name in names[start::count]} for start in range(count)]


class LastRank:
    """The trainer as TRL's client is it where there is no NCCL: the last rank, which comes once it was answered."""

    def __init__(self, port: int) -> None:
        limit = timedelta(seconds=PATIENCE)
        store = torch.distributed.TCPStore("127.0.0.1", port, 2, False, limit)
        self._group = c10d.ProcessGroupGloo(c10d.PrefixStore("client2server", store), 1, 2, limit)

    def send(self, tensor: Tensor) -> None:
        self._group.broadcast(tensor.contiguous(), 1).wait()
        self._group.barrier().wait()


def announced(bucket: dict[str, Tensor]) -> dict[str, Any]:
    """Names, types and shapes, as SGLang's clients write them."""
    return {
        "names": list(bucket),
        "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in bucket.values()],
        "shapes": [list(tensor.shape) for tensor in bucket.values()],
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class TrainerGroup:
    """Rank 0, as slime, AReaL and SGLang's own tests open it. With a server it is a group of two."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = free_port()
        self._store: Any = None
        self._group: Any = None

    def meet(self, call: Callable[[], Any]) -> Any:
        """Open the group while a server is told to join it; what the server answers."""
        return self._beside(call, self._open)

    def send(self, tensors: Iterable[Tensor], call: Callable[[], Any]) -> Any:
        """Broadcast tensors while a server is told to receive them; what the server answers."""
        return self._beside(call, lambda: [self._group.broadcast(each.contiguous(), 0).wait() for each in tensors])

    def die(self) -> None:
        """What the kernel does for a process that was killed: all its connections are closed."""
        if self._group is not None:
            c10d.destroy_process_group(self._group)
        self._group = self._store = None

    def _open(self) -> None:
        limit = timedelta(seconds=PATIENCE)
        self._store, _, _ = next(rendezvous(f"tcp://127.0.0.1:{self.port}", 0, 2, timeout=limit))
        prefixed = c10d.PrefixStore(self.name, self._store)
        self._group, _ = c10d._new_process_group_helper(
            2, 0, [], c10d.Backend("gloo"), prefixed, group_name=self.name, timeout=limit
        )
        c10d._world.pg_group_ranks[self._group] = {0: 0, 1: 1}

    def _beside(self, call: Callable[[], Any], work: Callable[[], Any]) -> Any:
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
        thread.start()
        work()
        thread.join(PATIENCE)
        assert answers, "the server did not answer"
        return answers[0]
