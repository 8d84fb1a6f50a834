"""The share of a GPU's peak that each kind of work reaches.

Measured figures come from one H200 at the real shapes of holotron-12b (PyTorch 2.11: cuBLAS, scaled_mm, SDPA); other
GPUs are assumed to reach the same shares. Two figures are not measurements and say so.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from holotron.plan.errors import PlanError

MEASURED_ON = "H200"


@dataclass(frozen=True)
class Efficiency:
    """Shares of peak, one per kind of work, and seconds beside them. Infinity leaves a kind of work out."""

    # 68 ms for all layer matrices over 2,368 tokens: 51.9 TFLOP at 764 TFLOP/s of 989.
    # Longer batches fall to 670 TFLOP/s (620 ms at 18,944 tokens), because the card then runs into its power limit.
    prefill_bf16: float = 0.772
    # 36 ms for the same matrices in fp8: 1,443 TFLOP/s of 1,979.
    prefill_fp8: float = 0.729
    # Not measured here: FlashAttention-3 is published at 620 TFLOP/s on an H100 (heads of 128, 16k tokens).
    prefill_attention: float = 0.627
    # Not measured here: set so that the scan takes about 2 ms of a 2,368-token prefill. It has 1% of the arithmetic and
    # is bound by memory traffic, so that twice this time would move a whole step by 2%.
    prefill_scan: float = 0.27
    # 287 ms for 90 tiles of 1,024 patches: 463 TFLOP/s, attention counted. Heads of 80 channels are the weak part.
    vision: float = 0.468
    # 6.7 ms for the 21.9 GB of layer weights at 100 rows: 3.27 TB/s of 4.8. Thin matrices do not stream at full rate.
    decode_weights_bf16: float = 0.682
    # 4.75 ms for 11.0 GB: 2.31 TB/s. Half the bytes are far from half the time.
    decode_weights_fp8: float = 0.481
    # 0.35 ms for the 1.34 GB of lm_head at 100 rows: one wide matrix does better than many.
    decode_head: float = 0.799
    # 3.65 ms to read and write the 16-bit states of 100 sessions: 4.02 TB/s (32-bit states: 7.0 ms, 4.19 TB/s).
    decode_states: float = 0.838
    # Decode attention over 100 sessions of 25,000 tokens streams the KV at 4.36 TB/s.
    decode_kv: float = 0.908
    # Pinned copies between host and device reach 55 GB/s each way over PCIe 5 x16 (64 GB/s raw).
    host_link: float = 0.86
    # What measured steps take beside those parts, in seconds; only simulated agents pay for it, limits do not.
    # 13.4 and 15.7 ms for 100 sessions that decode at 256 and 4,096 tokens, of which the parts are 10.9 and 13.2.
    step_overhead: float = 0.0027
    # 92 ms for a prompt of 2,368 tokens by itself, 55 in fp8, of which the parts are 71 and 39: norms, convolution, the
    # scan as it is, and less than the short-time rate of the matrices. Between the two.
    token_overhead: float = 6.6e-6
    # Steps with a prompt are launched, not replayed: set by closed loops of 100 sessions in bf16 and fp8.
    prompt_overhead: float = 0.005

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 0 or not (value or field.name.endswith("overhead")):
                raise PlanError(f"efficiency {field.name} is {value}; a share of peak must be above 0")


MEASURED = Efficiency()
