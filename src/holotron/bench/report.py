"""What a benchmark leaves behind: where and how it was run, its figures, and how far they are from the limit."""

from __future__ import annotations

import datetime
import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from holotron.bench.agent import AgentWorkload
from holotron.engine.config import EngineConfig
from holotron.model.config import ModelConfig
from holotron.plan.errors import PlanError
from holotron.plan.gpus import known_gpu
from holotron.plan.memory import Precision, session_bytes
from holotron.plan.roofline import step_cost


def machine() -> dict[str, Any]:
    """The hardware and software a figure belongs to."""
    words = sys.argv[2:] if sys.argv[1:2] == ["bench"] else sys.argv[1:]  # `holotron bench`, or this package by itself
    facts: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        # As others can repeat it: without the folders of this machine.
        "command": " ".join(["holotron bench", *(Path(word).name if word[:1] == "/" else word for word in words)]),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": platform.processor() or platform.machine(),
    }
    if torch.cuda.is_available():
        facts["device"] = torch.cuda.get_device_name()
        facts["cuda"] = torch.version.cuda
    return facts


def limit(
    model: ModelConfig, load: AgentWorkload, stored: Precision, history: int, batch: int
) -> dict[str, Any] | None:
    """The planner's limit for this workload on this device, if it knows the device."""
    gpu = known_gpu(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
    if gpu is None:
        return None
    try:
        return step_cost(model, gpu, load, stored, history=history, batch=max(1, batch)).to_dict()
    except PlanError:
        return None


def precision(config: EngineConfig, weights: str) -> Precision:
    eight = config.kv_dtype is not None and config.kv_dtype.itemsize == 1
    return Precision(weights, "fp8" if eight else "bf16", state_bits=8 * config.state_dtype.itemsize)


def agent_report(
    model: ModelConfig, load: AgentWorkload, config: EngineConfig, figures: dict[str, Any], weights: str = "bf16"
) -> dict[str, Any]:
    """Everything about one run of the agent workload."""
    tokens = round(figures["tokens_per_session"])
    stored = precision(config, weights)
    predicted = session_bytes(model, stored, tokens, config.checkpoints) if tokens else 0
    batch = min(load.sessions, round(figures["resident_sessions"]) or load.sessions)
    bound = limit(model, load, stored, round(figures["mean_history"]), batch)
    return {
        **machine(),
        "model": model.name,
        "weights": weights,
        "sessions": load.sessions,
        "workload": load.to_dict(),
        "engine": {key: str(value) for key, value in vars(config).items()},
        **figures,
        "predicted_bytes_per_session": predicted,
        "bytes_against_prediction": figures["bytes_per_session"] / predicted if predicted else None,
        "limit": bound,
        "share_of_limit": figures["steps_per_second"] / bound["steps_per_second"] if bound else None,
    }


ROWS = (
    ("agent steps/s", "steps_per_second", "{:.2f}"),
    ("share of the computed limit", "share_of_limit", "{:.0%}"),
    ("step latency p50 / s", "latency_p50", "{:.2f}"),
    ("step latency p95 / s", "latency_p95", "{:.2f}"),
    ("time to first token p50 / s", "first_token_p50", "{:.2f}"),
    ("time without work", "share_without_work", "{:.0%}"),
    ("logical tokens/s", "logical_tokens_per_second", "{:,.0f}"),
    ("computed tokens/s", "computed_tokens_per_second", "{:,.0f}"),
    ("redundancy", "redundancy", "{:.3f}"),
    ("mean history / tokens", "mean_history", "{:,.0f}"),
    ("bytes per session / MiB", "bytes_per_session", "{:,.0f}"),
    ("… of the planner's", "bytes_against_prediction", "{:.1%}"),
    ("sessions on the device", "resident_sessions", "{:.0f}"),
    ("ms per engine step", "milliseconds_per_engine_step", "{:.1f}"),
    ("failures", "failures", "{}"),
)


def print_agent(report: dict[str, Any]) -> None:
    print(f"{report['model']} on {report['device']}, {report['sessions']} sessions, {report['date']}")
    for label, key, form in ROWS:
        value = report[key]
        if key == "bytes_per_session":
            value = value / 2**20
        print(f"  {label:32s} {'–' if value is None else form.format(value):>12s}")

    if "agents_held" in report:
        print(f"  {report['agents_held']} agents are held with p95 within {report['held_within_seconds']:g} s")


def print_figures(figures: dict[str, Any], digits: int) -> None:
    for key, value in figures.items():
        print(f"  {key:40s} {value:,.{digits}f}" if isinstance(value, float) else f"  {key:40s} {value}")


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    partial.rename(path)
