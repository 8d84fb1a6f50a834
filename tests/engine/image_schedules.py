"""Random schedules with images for every family that sees, more than the suite has time for.

python -m tests.engine.image_schedules --schedules 200 --out benchmarks/results/image-schedules.json
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from tests.engine.test_schedules import run_schedules
from tests.model.tiny import tiny_model, tiny_qwen, tiny_vision

FAMILIES = {
    **{kind: tiny_qwen(kind) for kind in ("qwen3", "experts", "qwen2.5")},
    "omni": {"pattern": "ME*E", "vision": tiny_vision()},
    "holotron": {"pattern": "M-M*-", "vision": tiny_vision(mode="tiles")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    for kind, shape in FAMILIES.items():
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            # A difference or a leak is an assertion in there.
            checked, evicted = run_schedules(tiny_model(seed=6, **shape), range(options.schedules), Path(folder))
        results[kind] = {"schedules": options.schedules, "tokens_compared": checked, "sessions_evicted": evicted}
        results[kind] |= {"differences": 0, "leaks": 0, "seconds": round(time.monotonic() - begin, 1)}
        print(kind, results[kind])
    if options.out is not None:
        about = {
            "command": f"python -m tests.engine.image_schedules --schedules {options.schedules}",
            "date": datetime.now(UTC).date().isoformat(),
            "hardware": f"{platform.machine()} CPU, one thread",
            "torch": torch.__version__,
        }
        options.out.write_text(json.dumps(about | {"results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
