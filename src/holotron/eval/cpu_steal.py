"""What other machines on the same host took of this one's time."""

from __future__ import annotations

import os
from pathlib import Path

STAT = Path("/proc/stat")
STOLEN = 8  # the column of the line "cpu": ticks in which a virtual machine's cores wanted to run and were not let


def stolen_seconds() -> float | None:
    """How long other machines on the same host had these cores, since the start and summed over them; None: unknown."""
    try:
        ticks = STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[STOLEN]
        return int(ticks) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def stolen_since(before: float | None) -> float | None:
    now = stolen_seconds()
    return None if now is None or before is None else round(now - before, 2)
