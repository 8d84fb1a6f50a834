"""What the planner of training assumes of a GPU and of compiled layers: all its figures that are not counted."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True)
class TrainingConstants:
    """Shares are of the data sheet's peaks; factors multiply what is counted from shapes."""

    # Time: matrix products of decoder and tower, and attention in a tower whose images differ in size.
    products: float = 0.60
    vision: float = 0.45
    attention: float = 0.20
    # Bytes that what is between the products moves, by each value that a layer would keep: written and read again.
    moved: float = 2.4
    bandwidth: float = 0.70
    # An AdamW step reads and writes weight, moments and gradient; the average as much again.
    optimizer_bytes: float = 32.0
    average_bytes: float = 12.0
    # Between GPUs, in bytes a second each way: NVLink of one machine. It runs beside the arithmetic.
    link: float = 300e9
    # Memory: of the values that a layer needs for its gradient, the share that is there at once in its backward pass.
    working: float = 1.0
    # Bytes of a value inside a scan: its kernels hold them on the chip, and keep next to nothing of them.
    scan_bytes: float = 0.0
    # The share of a layer's last product that is kept: nothing needs it, and compiled layers drop it.
    last: float = 0.0
    # Bytes of a logit: 16 bits, float32, its logarithm and its gradient.
    logit_bytes: float = 14.0
    # What the allocator cannot use, what libraries take, and the context: not in what PyTorch calls allocated.
    context: float = 1.0 * GIB
    fragmentation: float = 0.04


ASSUMED = TrainingConstants()
