"""A trainer that does not come, or says nothing, is waited for no longer than was said."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from holotron.engine.errors import EngineError
from holotron.engine.weight_group import TransferFailed, WeightGroup
from holotron.engine.weight_spec import GroupAddress, TensorSpec
from tests.server.trainer_side import LastRank, free_port

CPU = torch.device("cpu")


def test_nobody_comes() -> None:
    began = time.monotonic()
    with pytest.raises(TransferFailed, match=r"'nobody' could not be joined at 127\.0\.0\.1"):
        WeightGroup(GroupAddress("nobody", "127.0.0.1", free_port(), 1, 2), CPU, 0.3)
    assert time.monotonic() - began < 30


def test_a_trainer_that_says_nothing() -> None:
    port = free_port()
    found: list[LastRank] = []
    thread = threading.Thread(target=lambda: found.append(LastRank(port)))
    thread.start()
    group = WeightGroup(GroupAddress("silent", "127.0.0.1", port, 0, 2, trainer=1), CPU, 1.0)
    thread.join(60)
    began = time.monotonic()
    with pytest.raises(TransferFailed, match="weight did not come from the trainer"):
        list(group.receive([TensorSpec("weight", "float32", (3,))]))
    assert time.monotonic() - began < 30
    group.close()


def test_addresses_that_cannot_be() -> None:
    with pytest.raises(EngineError, match=r"'mpi'.*gloo, nccl"):
        GroupAddress("a", "host", 1, 1, 2, "mpi")
    for rank in (0, 2):
        with pytest.raises(EngineError, match=f"rank {rank} of 2"):
            GroupAddress("a", "host", 1, rank, 2)
    with pytest.raises(EngineError, match="nccl needs a GPU"):
        WeightGroup(GroupAddress("a", "host", 1, 1, 2, "nccl"), CPU, 1.0)
