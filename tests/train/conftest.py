"""What the tests of training share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    """Compiled layers count against one limit in a process: what other tests compiled must not."""
    if torch.cuda.is_available():
        torch._dynamo.reset()
