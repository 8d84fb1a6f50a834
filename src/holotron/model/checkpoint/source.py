"""Where a model was read from, so that it can be written in the same form."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from holotron.model.checkpoint.names import Dialect


@dataclass(frozen=True)
class CheckpointSource:
    """The folder, its config.json as it stood, its spelling, and the constants that are not weights."""

    folder: Path
    raw_config: dict[str, Any]
    dialect: Dialect
    kept: dict[str, Tensor] = field(default_factory=dict)
