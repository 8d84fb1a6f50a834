"""The plan for one model on one GPU: what fits, what a step costs, and what a stateless server would cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from holotron.engine.options import EngineOptions
from holotron.engine.pace import SchedulerConfig
from holotron.model.config import ModelConfig
from holotron.plan.agents import predicted_held
from holotron.plan.efficiency import MEASURED, Efficiency
from holotron.plan.gpus import Gpu
from holotron.plan.memory import MemoryPlan, Precision, plan_memory
from holotron.plan.roofline import StepCost, StepTimes, step_cost
from holotron.plan.workload import Workload

MOST_AGENTS = 512  # that are simulated


@dataclass(frozen=True)
class SessionPlan:
    """Answers for one model. The costs are None where not even one session fits beside the weights."""

    model: ModelConfig
    gpu: Gpu
    workload: Workload
    precision: Precision
    memory: MemoryPlan
    cost: StepCost | None
    stateless: StepCost | None

    @property
    def fits(self) -> bool:
        """Whether all sessions stay on the GPU at mean age."""
        return self.memory.offloaded == 0

    @property
    def is_hybrid(self) -> bool:
        return self.model.count("M") > 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: bytes, tokens, milliseconds, rates per second."""
        memory = asdict(self.memory)
        memory["restore_milliseconds"] = memory.pop("restore_seconds") * 1e3
        memory["weight_bytes"] = self.memory.weight_bytes
        memory["weights_fit"] = self.memory.weights_fit
        return {
            "model": describe_model(self.model),
            "gpu": asdict(self.gpu),
            "workload": {**asdict(self.workload), "screen": list(self.workload.screen)},
            "precision": asdict(self.precision),
            "memory": memory,
            "fits": self.fits,
            "cost": self.cost.to_dict() if self.cost else None,
            "stateless": self.stateless.to_dict() if self.stateless else None,
        }


def describe_model(model: ModelConfig) -> dict[str, Any]:
    """Plain values for JSON: layers by kind, parameters by part."""
    return {
        "name": model.name,
        "layers": model.layers,
        "mamba_layers": model.count("M"),
        "attention_layers": model.count("*"),
        "mlp_layers": model.count("-"),
        "moe_layers": model.count("E"),
        "text_parameters": model.text_parameters,
        "active_parameters": model.active_parameters,
        "vision_parameters": model.vision_parameters,
        "projector_parameters": model.projector_parameters,
    }


def plan(
    model: ModelConfig,
    gpu: Gpu,
    workload: Workload | None = None,
    precision: Precision | None = None,
    *,
    beside: ModelConfig | None = None,
    checkpoints: int = EngineOptions.checkpoints,
    reserve: float | None = None,
    efficiency: Efficiency = MEASURED,
) -> SessionPlan:
    """Plan one model for a workload; one without a vision tower gets as many tokens per screenshot as `beside`."""
    workload = (workload or Workload()).resolved(model, beside)
    precision = precision or Precision()
    memory = plan_memory(
        model, gpu, workload, precision, checkpoints=checkpoints, reserve=reserve, efficiency=efficiency
    )
    batch = min(workload.sessions, memory.mean_fit)
    cost = stateless = None
    if batch > 0:
        costed = partial(step_cost, model, gpu, workload, precision, efficiency=efficiency)
        costed = partial(costed, history=workload.mean_history, batch=batch)
        # Sessions take turns fairly, so once some have to wait on the host, every step brings its session back.
        cost = costed(restore=memory.restore_seconds if memory.offloaded else 0.0)
        stateless = costed(stateless=True)
    return SessionPlan(model, gpu, workload, precision, memory, cost, stateless)


def agents_held(plan: SessionPlan, think: tuple[float, float], within: float) -> dict[str, Any]:
    """The most agents that think so long of whose steps 95% take at most so many seconds, simulated; all must fit."""
    config = SchedulerConfig(prefill_tokens=EngineOptions.prefill_tokens, prefill_every=EngineOptions.prefill_every)
    times = StepTimes(plan.model, plan.gpu, plan.workload, plan.precision)
    most = min(plan.memory.mean_fit, MOST_AGENTS)
    held = predicted_held(times, plan.workload, config, think=think, within=within, most=most)
    return {"model": plan.model.name} | held
