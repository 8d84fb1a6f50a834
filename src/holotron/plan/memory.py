"""Where the bytes of a GPU go: weights, workspace, and what each session keeps."""

from __future__ import annotations

from dataclasses import dataclass

from holotron.engine.options import DEVICE_RESERVE, STATE_BYTES, EngineOptions
from holotron.model.config import ModelConfig
from holotron.plan.efficiency import MEASURED, Efficiency
from holotron.plan.errors import PlanError
from holotron.plan.gpus import Gpu
from holotron.plan.workload import Workload

_BYTES = {"bf16": 2, "fp8": 1}


@dataclass(frozen=True)
class Precision:
    """How weights, KV and SSM state are stored; by default as `holotron serve` does.

    fp8 weights are the layers' only: embeddings, lm_head, routed experts and vision tower keep 16 bits. The
    convolution's state always has 16.
    """

    weights: str = "bf16"
    kv: str = "bf16"
    state_bits: int = 8 * STATE_BYTES[EngineOptions.state_dtype]

    def __post_init__(self) -> None:
        for name, value in (("weights", self.weights), ("kv", self.kv)):
            if value not in _BYTES:
                raise PlanError(f"{name} are {value!r}; known formats are {', '.join(_BYTES)}")
        if self.state_bits not in (16, 32):
            raise PlanError(f"the state has {self.state_bits} bits; 16 and 32 are possible")

    @property
    def weight_bytes(self) -> int:
        return _BYTES[self.weights]

    @property
    def kv_bytes(self) -> int:
        return _BYTES[self.kv]


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes on one GPU. `mean` is a session half-way through its episode, `end` one at its last token."""

    gpu_bytes: int
    text_weight_bytes: int
    vision_weight_bytes: int
    reserve_bytes: int
    free_bytes: int
    kv_bytes_per_token: int
    ssm_bytes: int
    conv_bytes: int
    checkpoints: int
    state_tokens: int | None
    mean_tokens: int
    mean_session_bytes: int
    mean_needed_bytes: int
    mean_fit: int
    end_tokens: int
    end_session_bytes: int
    end_needed_bytes: int
    end_fit: int
    offloaded: int
    restore_seconds: float

    @property
    def weight_bytes(self) -> int:
        return self.text_weight_bytes + self.vision_weight_bytes

    @property
    def weights_fit(self) -> bool:
        return self.weight_bytes + self.reserve_bytes < self.gpu_bytes


def kv_bytes_per_token(model: ModelConfig, precision: Precision) -> int:
    return model.kv_values_per_token * precision.kv_bytes


def ssm_bytes(model: ModelConfig, precision: Precision) -> int:
    return model.ssm_values * precision.state_bits // 8


def conv_bytes(model: ModelConfig) -> int:
    return model.conv_values * 2


def session_bytes(model: ModelConfig, precision: Precision, tokens: int, checkpoints: int = 0) -> int:
    """What one session of so many tokens keeps on the GPU: its KV, its state, and states for going back."""
    state = ssm_bytes(model, precision) + conv_bytes(model)
    return kv_bytes_per_token(model, precision) * tokens + state * (1 + checkpoints)


def plan_memory(
    model: ModelConfig,
    gpu: Gpu,
    workload: Workload,
    precision: Precision,
    *,
    checkpoints: int = EngineOptions.checkpoints,
    reserve: float | None = None,
    efficiency: Efficiency = MEASURED,
) -> MemoryPlan:
    """Divide one GPU's memory; sessions that do not fit at mean age are counted as offloaded to host memory.

    reserve: the share of the memory that is left to activations, graphs and libraries; None is what the engine leaves.
    """
    if checkpoints < 0:
        raise PlanError(f"checkpoints is {checkpoints}; it must be at least 0")
    if reserve is not None and not 0 <= reserve < 1:
        raise PlanError(
            f"the reserve is {reserve}; it is a share of the GPU's memory, from 0 up to but not including 1"
        )
    layers = model.shared_parameters
    text = layers * precision.weight_bytes + (model.text_parameters - layers) * 2
    vision = (model.vision_parameters + model.projector_parameters) * 2
    reserved = DEVICE_RESERVE if reserve is None else int(gpu.memory_bytes * reserve)
    free = max(0, gpu.memory_bytes - reserved - text - vision)
    mean = session_bytes(model, precision, workload.mean_tokens, checkpoints)
    end = session_bytes(model, precision, workload.end_tokens, checkpoints)
    moved = session_bytes(model, precision, workload.mean_tokens)  # checkpoints stay behind
    mean_fit = free // max(mean, 1)
    kv, ssm = kv_bytes_per_token(model, precision), ssm_bytes(model, precision)
    return MemoryPlan(
        gpu_bytes=gpu.memory_bytes,
        text_weight_bytes=text,
        vision_weight_bytes=vision,
        reserve_bytes=reserved,
        free_bytes=free,
        kv_bytes_per_token=kv,
        ssm_bytes=ssm,
        conv_bytes=conv_bytes(model),
        checkpoints=checkpoints,
        state_tokens=round(ssm / kv) if kv and ssm else None,
        mean_tokens=workload.mean_tokens,
        mean_session_bytes=mean,
        mean_needed_bytes=mean * workload.sessions,
        mean_fit=mean_fit,
        end_tokens=workload.end_tokens,
        end_session_bytes=end,
        end_needed_bytes=end * workload.sessions,
        end_fit=free // max(end, 1),
        offloaded=max(0, workload.sessions - mean_fit),
        restore_seconds=moved / (gpu.host_bandwidth * efficiency.host_link),
    )
