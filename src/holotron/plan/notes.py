"""What a plan says in plain words: the verdict, what was assumed, and where common arithmetic goes wrong."""

from __future__ import annotations

from typing import Any

from holotron.engine.options import GIB, EngineOptions
from holotron.plan.efficiency import MEASURED_ON
from holotron.plan.gpus import MIB
from holotron.plan.planner import SessionPlan
from holotron.plan.workload import DEFAULT_IMAGE_TOKENS


def verdict(plan: SessionPlan) -> str:
    """One sentence on whether the sessions fit, and how fast they go."""
    name, sessions, memory = plan.model.name, plan.workload.sessions, plan.memory
    if not memory.weights_fit:
        return (
            f"{name}: the weights ({memory.weight_bytes / GIB:.1f} GiB) and the workspace do not fit on one"
            f" {plan.gpu.name}; take {'fp8 weights or ' if plan.precision.weights == 'bf16' else ''}a larger GPU."
        )
    if plan.cost is None:
        return f"{name}: not one session of {memory.mean_tokens:,} tokens fits beside the weights."
    speed = plan.cost.steps_per_second
    pace = f"The limit is {speed:.{1 if speed >= 1 else 2}f} steps/s."
    if not plan.fits:
        return (
            f"{name}: {plural(sessions, 'session')} {_do(sessions)} not fit, {memory.mean_fit:,} {_do(memory.mean_fit)}"
            f"; {memory.offloaded:,} must wait in host memory. {pace}"
        )
    if memory.end_fit >= sessions:
        room = f"up to {memory.mean_fit:,} would, {memory.end_fit:,} if all ended at once"
    else:
        room = f"up to {memory.mean_fit:,} would at staggered ages, but only {memory.end_fit:,} if all ended at once"
    return f"{name}: {plural(sessions, 'session')} {'fits' if sessions == 1 else 'fit'}; {room}. {pace}"


def held_sentence(held: dict[str, Any]) -> str:
    """How many agents a simulation found."""
    low, high = held["think_seconds"]
    agents = f"{held['model']}: about {held['agents']} agents that think {low:g} to {high:g} s"
    room = ", which is all that fit" if held["agents"] == held["most"] else ""
    return f"{agents} have 95% of their steps answered within {held['within_seconds']:g} s{room} (simulated)."


def assumptions(plan: SessionPlan, against: SessionPlan | None = None) -> list[str]:
    """What the reader must know to take the figures as they are meant."""
    notes = [note for each, other in _pairs(plan, against) for note in _assumptions(each, other)]
    if any(each.memory.offloaded and each.cost for each, _ in _pairs(plan, against)):
        notes.append(
            "While sessions wait in host memory, every step brings one back; the copy runs beside the arithmetic."
        )
    if plan.memory.mean_tokens != EngineOptions.tokens_per_session and plan.cost:
        notes.append(
            f"`holotron serve` divides its memory for sessions of {EngineOptions.tokens_per_session:,} tokens; give it"
            f" --tokens-per-session {plan.memory.mean_tokens} for these."
        )
    if plan.precision.weights == "fp8" and plan.gpu.fp8_flops is None:
        notes.append(f"{plan.gpu.name} has no fp8 units: fp8 weights save memory but are multiplied at the bf16 rate.")
    if plan.gpu.name != MEASURED_ON:
        notes.append(f"The shares of peak were measured on an {MEASURED_ON} and are assumed for the {plan.gpu.name}.")
    return notes


def corrections(plan: SessionPlan, against: SessionPlan | None = None) -> list[str]:
    """Facts of these models that replace arithmetic often done wrong; only those that apply."""
    notes = [note for each, _ in _pairs(plan, against) for note in _state_notes(each)]
    return notes + (_comparison_notes(plan, against) if against is not None else [])


def _pairs(plan: SessionPlan, against: SessionPlan | None) -> list[tuple[SessionPlan, SessionPlan | None]]:
    return [(plan, against)] if against is None else [(plan, against), (against, plan)]


def _assumptions(plan: SessionPlan, other: SessionPlan | None) -> list[str]:
    name, workload = plan.model.name, plan.workload
    notes = []
    if plan.model.vision is None and not workload.text_only:
        if other is not None and other.model.vision is not None:
            notes.append(
                f"{name} has no vision tower: it gets the same {workload.tokens_per_image:,} tokens per screenshot as"
                f" {other.model.name}, as text, and pays nothing for seeing."
            )
        elif workload.tokens_per_image == DEFAULT_IMAGE_TOKENS:
            notes.append(
                f"{name} has no vision tower: a screenshot counts {DEFAULT_IMAGE_TOKENS:,} text tokens, what nine tiles"
                " make of 1920x1080 in holotron-12b."
            )
    if workload.end_tokens > plan.model.max_positions:
        notes.append(
            f"{name} is made for {plan.model.max_positions:,} tokens; an episode here ends at {workload.end_tokens:,}."
        )
    return notes


def _state_notes(plan: SessionPlan) -> list[str]:
    model, memory = plan.model, plan.memory
    mamba, mlp, attention = model.count("M"), model.count("-"), model.count("*")
    notes = []
    if mamba and mlp:
        notes.append(
            f"{model.name} has {mamba} Mamba-2 layers, not {mamba + mlp}: the other {mlp} are MLPs and carry no state."
        )
    if mamba and memory.state_tokens:
        notes.append(
            f"{model.name}'s state is not free: {_ratio(memory.ssm_bytes / MIB)} MiB per session, as much as the KV of"
            f" {_about(memory.state_tokens)} tokens."
        )
    if mamba and attention:
        notes.append(
            f"{model.name}'s memory still grows: {attention} attention layers keep {memory.kv_bytes_per_token:,} bytes"
            " of KV per token."
        )
    return notes


def _comparison_notes(plan: SessionPlan, against: SessionPlan) -> list[str]:
    ours, theirs = plan.memory, against.memory
    if not plan.is_hybrid or against.is_hybrid or not 0 < ours.kv_bytes_per_token < theirs.kv_bytes_per_token:
        return []
    per_token = _ratio(theirs.kv_bytes_per_token / ours.kv_bytes_per_token)
    per_session = _ratio(theirs.mean_session_bytes / ours.mean_session_bytes)
    notes = [
        f"{against.model.name} keeps {theirs.kv_bytes_per_token:,} bytes of KV per token: {per_token} times as much as"
        f" {plan.model.name}."
    ]
    if ours.mean_tokens == theirs.mean_tokens and per_session != per_token:
        notes.append(
            f"A whole session of {ours.mean_tokens:,} tokens differs by {per_session} times, not {per_token}: the state"
            " counts."
        )
    return notes


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _do(count: int) -> str:
    return "does" if count == 1 else "do"


def _ratio(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _about(tokens: int) -> str:
    """Two digits are enough for an 'about'."""
    magnitude = 10 ** max(0, len(str(tokens)) - 2)
    return f"about {round(tokens / magnitude) * magnitude:,}"
