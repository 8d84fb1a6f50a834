"""What an engine is built from, as plain values: read by the command line, sent to another process, planned with."""

from __future__ import annotations

from dataclasses import dataclass

from holotron.engine.errors import EngineError

GIB = 2**30
# Beside sessions the device holds activations, graphs and libraries.
DEVICE_RESERVE = 10 * GIB
CPU_MEMORY = 2 * GIB
STATE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
KV_BYTES = {**STATE_BYTES, "fp8": 1}


@dataclass(frozen=True)
class EngineOptions:
    """Which model an engine has, and how much room its sessions get. None means: found out when it is built.

    model: a folder, a hub id or a preset. random: random weights in the shape of a preset.
    dtype: of the weights; None is as stored, and float32 for the small policies on a CPU, most of which are slow in 16
    bits. fp8 is of the decoder's layers alone. kv_dtype: None is as the weights, and 16 bits where those have 8.
    bf16_products: a float32 model multiplies in bfloat16 on a CPU that has instructions for it; None is so for small
    policies where dtype is None, too (`model/bf16_products.py`).
    memory_gib: for sessions on the device; None is what is free there less DEVICE_RESERVE, or CPU_MEMORY on a CPU.
    tokens_per_session: how long sessions are expected to be, which divides that memory between states and pages.
    sessions: no more states than so many sessions need; None is as many as fit.
    prefill_tokens, prefill_every, targets: how the engine divides its time (`SchedulerConfig`).
    max_context: most tokens of a session, and at most what the model was made for unless `extrapolate`.
    adapters: LoRA adapters, each a name and a folder as PEFT writes it.
    tokenizer: False builds an engine that knows token ids and no text.
    """

    model: str = "holotron-nano"
    random: bool = False
    device: str | None = None
    dtype: str | None = None
    bf16_products: bool | None = None
    state_dtype: str = "float32"
    kv_dtype: str | None = None
    memory_gib: float | None = None
    tokens_per_session: int = 16384
    sessions: int | None = None
    max_context: int = 65536
    extrapolate: bool = False
    host_gib: float = 4.0
    disk_gib: float = 0.0
    disk_folder: str | None = None
    page_size: int = 64
    checkpoints: int = 1
    prefill_tokens: int = 2560
    prefill_every: int = 0
    target_token_latency: float | None = None
    target_step_latency: float | None = None
    reads_late: bool = False
    max_running: int = 256
    image_cache_mib: float = 256.0
    cuda_graphs: bool = True
    tokenizer: bool = True
    threads: int | None = None
    adapters: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        known = {"dtype": KV_BYTES, "state_dtype": STATE_BYTES, "kv_dtype": KV_BYTES}
        for name, kinds in known.items():
            value = getattr(self, name)
            if value not in kinds and not (value is None and name != "state_dtype"):
                raise EngineError(f"{name} is {value!r}; choose one of {', '.join(kinds)}")
        if len(dict(self.adapters)) < len(self.adapters):
            raise EngineError(f"two adapters have one name: {', '.join(name for name, _ in self.adapters)}")
        for name in ("tokens_per_session", "max_context"):
            if getattr(self, name) < 1:
                raise EngineError(f"{name} is {getattr(self, name)}; it must be at least 1")
