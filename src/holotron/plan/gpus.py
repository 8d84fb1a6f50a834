"""The GPUs the planner knows: capacity as the driver reports it, peak rates as the data sheet gives them."""

from __future__ import annotations

from dataclasses import dataclass

from holotron.plan.errors import PlanError

MIB = 2**20

# Raw rate of the link to host memory, one direction, in bytes per second.
PCIE_4 = 32e9
PCIE_5 = 64e9
NVLINK_C2C = 450e9


@dataclass(frozen=True)
class Gpu:
    """One accelerator. Rates are dense peaks (no sparsity, 32-bit accumulation) per second; nothing reaches them."""

    name: str
    memory_bytes: int
    bandwidth: float
    bf16_flops: float
    fp8_flops: float | None
    host_bandwidth: float


# The memory is what nvidia-smi shows: the "141 GB" of an H200 are 143,771 MiB, which is 150.8 billion bytes.
_GPUS = (
    Gpu("A100-40GB", 40960 * MIB, 1.555e12, 312e12, None, PCIE_4),
    Gpu("A100-80GB", 81920 * MIB, 2.039e12, 312e12, None, PCIE_4),
    Gpu("A10G", 23028 * MIB, 0.600e12, 70e12, None, PCIE_4),
    Gpu("B200", 183359 * MIB, 7.7e12, 2250e12, 4500e12, PCIE_5),
    Gpu("GH200", 97871 * MIB, 4.0e12, 989e12, 1979e12, NVLINK_C2C),
    Gpu("H100", 81559 * MIB, 3.35e12, 989e12, 1979e12, PCIE_5),
    Gpu("H100-PCIE", 81559 * MIB, 2.039e12, 756e12, 1513e12, PCIE_5),
    Gpu("H200", 143771 * MIB, 4.8e12, 989e12, 1979e12, PCIE_5),
    Gpu("L4", 23034 * MIB, 0.300e12, 121e12, 242e12, PCIE_4),
    Gpu("L40S", 46068 * MIB, 0.864e12, 362e12, 733e12, PCIE_4),
    Gpu("RTX-4090", 24564 * MIB, 1.008e12, 165.2e12, 330.3e12, PCIE_4),
    Gpu("RTX-5090", 32607 * MIB, 1.792e12, 209.5e12, 419e12, PCIE_5),
)
GPUS: dict[str, Gpu] = {entry.name: entry for entry in _GPUS}

_BY_KEY = {entry.name.lower(): entry for entry in _GPUS}


def known_gpu(device_name: str) -> Gpu | None:
    """The GPU that a driver calls so, such as 'NVIDIA H100 80GB HBM3'; None where it is none of these."""
    told = set(device_name.upper().replace("-", " ").split())
    matches = (entry for entry in _GPUS if told.issuperset(entry.name.split("-")))
    return max(matches, key=lambda entry: len(entry.name), default=None)


def gpu(name: str) -> Gpu:
    """The GPU of that name, in any case and with '-', '_' or a space between its parts."""
    key = "-".join(name.lower().replace("_", " ").replace("-", " ").split())
    if key not in _BY_KEY:
        raise PlanError(f"no GPU is called {name!r}; known are {', '.join(GPUS)}")
    return _BY_KEY[key]
