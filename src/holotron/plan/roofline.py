"""What one agent step costs: arithmetic over the rate, bytes over the bandwidth, part by part."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from typing import Any

from holotron.model.config import ModelConfig, QwenVisionConfig, VisionConfig
from holotron.plan.efficiency import MEASURED, Efficiency
from holotron.plan.errors import PlanError
from holotron.plan.gpus import Gpu
from holotron.plan.memory import Precision, conv_bytes, kv_bytes_per_token, ssm_bytes
from holotron.plan.workload import Workload


@dataclass(frozen=True)
class StepCost:
    """Seconds of one GPU that one agent step of one session takes, when `batch` sessions decode together.

    `restore` is the time on the link to host memory. Copies run beside the arithmetic, so it only counts where it is
    longer than everything else.
    """

    batch: int
    history: int
    prefilled_tokens: int
    generated_tokens: int
    logical_tokens: int
    prefill_matrices: float
    prefill_attention: float
    prefill_scan: float
    vision: float
    decode_weights: float
    decode_head: float
    decode_states: float
    decode_kv: float
    restore: float = 0.0

    @property
    def prefill(self) -> float:
        return self.prefill_matrices + self.prefill_attention + self.prefill_scan

    @property
    def decode(self) -> float:
        return self.decode_weights + self.decode_head + self.decode_states + self.decode_kv

    @property
    def total(self) -> float:
        return max(self.prefill + self.vision + self.decode, self.restore)

    @property
    def steps_per_second(self) -> float:
        return 1 / self.total

    @property
    def decode_tokens_per_second(self) -> float:
        """Generated tokens of all sessions together, while nothing but decoding runs."""
        return self.generated_tokens / self.decode

    @property
    def logical_tokens_per_second(self) -> float:
        """History, new and generated tokens of every step, as published throughput figures count them."""
        return self.logical_tokens * self.steps_per_second

    def to_dict(self) -> dict[str, Any]:
        """Times in milliseconds, rates per second."""
        counts = asdict(self)
        del counts["logical_tokens"]
        parts = [name for name, value in counts.items() if isinstance(value, float)]
        seconds = {name: counts.pop(name) for name in parts}
        seconds |= {"prefill": self.prefill, "decode": self.decode, "total": self.total}
        return {
            **counts,
            "milliseconds": {name: value * 1e3 for name, value in seconds.items()},
            "steps_per_second": self.steps_per_second,
            "decode_tokens_per_second": self.decode_tokens_per_second,
            "logical_tokens_per_second": self.logical_tokens_per_second,
        }


def step_cost(
    model: ModelConfig,
    gpu: Gpu,
    workload: Workload,
    precision: Precision,
    *,
    history: int,
    batch: int,
    stateless: bool = False,
    restore: float = 0.0,
    efficiency: Efficiency = MEASURED,
) -> StepCost:
    """The cost of a step that begins with `history` tokens, while `batch` sessions decode together.

    A stateless server drops a session's memory between steps and prefills its whole history again. It is granted a
    cache of image embeddings: the screenshots of the history are not encoded again.
    """
    if history < 0 or batch < 1:
        raise PlanError(f"history is {history} and batch is {batch}; they must be at least 0 and 1")
    new = workload.new_tokens
    kept, prefilled = (0, history + new) if stateless else (history, new)
    generated = workload.generated_tokens
    # While a session decodes it grows from history + new to history + new + generated.
    context = history + new + generated / 2
    per_session = generated / batch
    head = 2 * model.vocab_size * model.hidden_size  # operations on one token, and bytes
    head_multiplied, head_fetched = head / (gpu.bf16_flops * efficiency.prefill_bf16), head / gpu.bandwidth
    states = 2 * batch * (ssm_bytes(model, precision) + conv_bytes(model))
    kv = batch * context * kv_bytes_per_token(model, precision)
    return StepCost(
        batch=batch,
        history=history,
        prefilled_tokens=prefilled,
        generated_tokens=generated,
        logical_tokens=history + new + generated,
        # The layers see every token, lm_head only the last.
        prefill_matrices=_layer_seconds(model, gpu, precision, prefilled, efficiency) + head_multiplied,
        prefill_attention=attention_flops(model, prefilled, kept) / (gpu.bf16_flops * efficiency.prefill_attention),
        prefill_scan=scan_flops(model, prefilled) / (gpu.bf16_flops * efficiency.prefill_scan),
        vision=0.0 if workload.text_only else vision_seconds(model, gpu, workload.tokens_per_image, efficiency),
        decode_weights=per_session * _layer_seconds(model, gpu, precision, batch, efficiency),
        decode_head=per_session * max(head_multiplied * batch, head_fetched / efficiency.decode_head),
        decode_states=per_session * states / (gpu.bandwidth * efficiency.decode_states),
        decode_kv=per_session * kv / (gpu.bandwidth * efficiency.decode_kv),
        restore=restore,
    )


@dataclass(frozen=True)
class StepTimes:
    """Seconds of the engine's steps: their parts, and what measured steps take beside them."""

    model: ModelConfig
    gpu: Gpu
    workload: Workload
    precision: Precision
    efficiency: Efficiency = MEASURED

    def seconds(self, decode: int, context: int, prompts: list[tuple[int, int]]) -> float:
        """decode sessions with `context` tokens together; prompts: tokens of each, and those before them."""
        model, gpu, share = self.model, self.gpu, self.efficiency
        new = sum(count for count, _ in prompts)
        rows = decode + len(prompts)
        states = 2 * rows * (ssm_bytes(model, self.precision) + conv_bytes(model))
        kv = context * kv_bytes_per_token(model, self.precision)
        took = self._matrices(decode + new) + share.step_overhead
        took += 2 * model.vocab_size * model.hidden_size / (gpu.bandwidth * share.decode_head)
        took += states / (gpu.bandwidth * share.decode_states) + kv / (gpu.bandwidth * share.decode_kv)
        for count, before in prompts:
            took += attention_flops(model, count, before) / (gpu.bf16_flops * share.prefill_attention)
            took += scan_flops(model, count) / (gpu.bf16_flops * share.prefill_scan)
            took += count * share.token_overhead
            if not self.workload.text_only:
                took += self._vision * count / self.workload.new_tokens
        return took + (share.prompt_overhead if prompts else 0.0)

    @cached_property
    def _matrices(self) -> Callable[[int], float]:
        return cache(lambda tokens: _layer_seconds(self.model, self.gpu, self.precision, tokens, self.efficiency))

    @cached_property
    def _vision(self) -> float:
        return vision_seconds(self.model, self.gpu, self.workload.tokens_per_image, self.efficiency)


# ---- the language model -------------------------------------------------------------------------------------------


def attention_flops(model: ModelConfig, tokens: int, kept: int) -> float:
    """Scores and weighted values of `tokens` new tokens over `kept` old ones and, causally, over themselves."""
    if model.attention is None:
        return 0.0
    width = model.attention.heads * model.attention.head_dim
    return 4.0 * model.count("*") * width * tokens * (kept + tokens / 2)


def scan_flops(model: ModelConfig, tokens: int) -> float:
    """The chunked Mamba-2 scan: products within each chunk, then each chunk's state written and read."""
    if (m := model.mamba) is None:
        return 0.0
    within_chunk = 2 * m.chunk_size * (m.groups * m.state_size + m.inner_size)
    through_state = 4 * m.inner_size * m.state_size
    return float(model.count("M") * tokens * (within_chunk + through_state))


def expected_experts(experts: int, experts_per_token: int, tokens: float) -> float:
    """Distinct experts that a batch touches if each token picks its own evenly."""
    return experts * (1 - math.pow(1 - experts_per_token / experts, tokens))


def touched_parameters(model: ModelConfig, tokens: float) -> tuple[float, float]:
    """Weights that must be read for a batch of so many tokens: of the routed experts, and of all else in the layers."""
    e = model.moe
    touched = expected_experts(e.experts, e.experts_per_token, tokens) if e else 0.0
    return model.expert_parameters * touched, float(model.shared_parameters)


def _layer_seconds(model: ModelConfig, gpu: Gpu, precision: Precision, tokens: int, efficiency: Efficiency) -> float:
    """All layer matrices over a batch: multiplying or fetching the weights, the longer of them.

    Routed experts by themselves: a prompt that keeps the other matrices multiplying may leave each expert with so few
    tokens that it waits for its weights. Without fp8 units, fp8 weights are widened on the way in and multiplied at the
    bf16 rate. Routed experts are bf16 in either case.
    """
    fp8 = precision.weights == "fp8"
    bf16_flops, bf16_bandwidth = (
        gpu.bf16_flops * efficiency.prefill_bf16,
        gpu.bandwidth * efficiency.decode_weights_bf16,
    )
    flops = gpu.fp8_flops * efficiency.prefill_fp8 if fp8 and gpu.fp8_flops is not None else bf16_flops
    bandwidth = gpu.bandwidth * efficiency.decode_weights_fp8 if fp8 else bf16_bandwidth
    experts, others = touched_parameters(model, tokens)
    chosen = touched_parameters(model, 1)[0]
    routed = max(2 * chosen * tokens / bf16_flops, 2 * experts / bf16_bandwidth)
    return routed + max(2 * others * tokens / flops, others * precision.weight_bytes / bandwidth)


# ---- vision tower ------------------------------------------------------------------------------------------------


def vision_flops(vision: VisionConfig, image_tokens: int) -> float:
    """The tower over one screenshot: tiles are separate sequences, a whole image is a single one."""
    patches = 4 * image_tokens
    sequence_patches = (vision.tile_size // vision.patch_size) ** 2 if vision.mode == "tiles" else max(patches, 1)
    sequence = sequence_patches + vision.prefix_tokens
    mlp = (3 if vision.gated else 2) * vision.width * vision.mlp_size
    products = 2 * sequence * (4 * vision.width**2 + mlp) * vision.depth
    seen = float(vision.depth * sequence)  # patches that one attends to, over all blocks
    if isinstance(vision, QwenVisionConfig) and vision.window_size is not None:
        window = (vision.window_size // vision.patch_size) ** 2
        whole = len(vision.full_attention)
        seen = whole * sequence + (vision.depth - whole) * min(window, sequence)
    attention = 4 * sequence * seen * vision.width
    embedding = 2 * sequence_patches * vision.patch_values * vision.width
    return patches / sequence_patches * (products + attention + embedding)


def vision_seconds(model: ModelConfig, gpu: Gpu, image_tokens: int, efficiency: Efficiency = MEASURED) -> float:
    """Tower and projector over one screenshot; both stay bf16."""
    if model.vision is None:
        return 0.0
    projector = 2 * image_tokens * model.projector_parameters / (gpu.bf16_flops * efficiency.prefill_bf16)
    return vision_flops(model.vision, image_tokens) / (gpu.bf16_flops * efficiency.vision) + projector
