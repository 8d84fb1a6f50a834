"""Compiles the Triton kernels for a GPU that this machine does not have, and tells what each takes of it.

python -m tests.ops.compiled --capability 90 --out benchmarks/results/kernels-compiled.json
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

from holotron.bench.kernels import PARTS
from holotron.ops.triton import attention_decode, attention_flash, experts

# Bytes of shared memory that a block may have.
SHARED = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448}
SMALLER = {
    "attention": {"SESSIONS": 2, "HISTORY": 200, "NEW": 130},
    "experts": {"TOKENS": (1, 100)},
    "linear": {"TOKENS": (100,)},
}
USED = re.compile(r"REG:(\d+) STACK:(\d+)")


def _compute_type(q_THD: torch.Tensor, pages_NKZD: torch.Tensor) -> tl.dtype:
    """What a GPU takes products in; tensors in host memory are taken for the interpreter's."""
    return tl.float16 if q_THD.dtype == torch.float16 or pages_NKZD.dtype == torch.float8_e4m3fn else tl.bfloat16


class AbsentGPU:
    """Enough of a driver for kernels to be compiled, and none of what would start them."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


def compiled(capability: int, parts: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """A row for each kernel as the benchmark of kernels calls it, each as soon as it is compiled."""
    driver.set_active(AbsentGPU(capability))
    start, found = JITFunction.run, dict[str, Any]()

    def compile_only(self: JITFunction[Any], *args: Any, warmup: bool = False, **options: Any) -> Any:
        kernel = start(self, *args, warmup=True, **options)
        return found.setdefault(kernel.hash, kernel)

    JITFunction.run = compile_only  # type: ignore[method-assign]
    for module in (attention_decode, attention_flash, experts):
        module.compute_type = _compute_type
    told = set[str]()
    for name in parts:
        part = import_module(f"holotron.bench.kernels_{name}")
        for constant, value in SMALLER.get(name, {}).items():
            assert hasattr(part, constant), constant
            setattr(part, constant, value)
        for case in part.cases(torch.device("cpu")):
            row = {"case": case.kernel, "shape": case.shape, "config": case.config}
            try:
                case.run()
            except NotImplementedError:  # a library's kernel, which a device must choose
                continue
            except Exception as error:
                yield row | {"error": f"{type(error).__name__}: {error}"[:300]}
            for key in found.keys() - told:
                told.add(key)
                yield row | taken(found[key], capability)


def taken(kernel: Any, capability: int) -> dict[str, Any]:
    """Registers of a thread, bytes of it that do not fit into them, and shared memory of a block."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = USED.search(told)
    assert used, told
    shared = kernel.metadata.shared
    return {
        "kernel": kernel.metadata.name,
        "warps": kernel.metadata.num_warps,
        "registers": int(used[1]),
        "stack_bytes": int(used[2]),
        "shared_bytes": shared,
        "fits": shared <= SHARED[capability],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capability", type=int, choices=sorted(SHARED), default=90)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = []
    for row in compiled(asked.capability, tuple(asked.parts)):
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    result = {
        "date": date.today().isoformat(),
        "command": f"python -m tests.ops.compiled --capability {asked.capability}",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "capability": asked.capability,
        "kernels": rows,
    }
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1) + "\n")
    bad = [row for row in rows if not row.get("fits", False)]
    for row in bad:
        print(json.dumps(row))
    print(f"{len(rows) - len(bad)} kernels compile and fit, {len(bad)} do not")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
