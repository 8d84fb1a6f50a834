"""One or two plans as a table, with the verdict and the notes below."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table

from holotron.cli.output import console, milliseconds, plain_table, print_wrapped, rate, size
from holotron.plan.notes import plural
from holotron.plan.planner import SessionPlan
from holotron.plan.roofline import StepCost

Cell = Callable[[SessionPlan], str]
NOTHING = "–"


def print_plans(
    plan: SessionPlan, against: SessionPlan | None, verdicts: list[str], assumptions: list[str], corrections: list[str]
) -> None:
    """The whole report on standard output."""
    plans = [plan] if against is None else [plan, against]
    out = console()
    out.print(_headline(plan), style="bold")
    print_wrapped(_setting(plan), style="dim")
    out.print()
    out.print(_table(plans))
    out.print()
    for number, line in enumerate(verdicts):
        print_wrapped(line, style="green" if plans[number % len(plans)].fits else "yellow")
    for title, notes in (("Assumptions", assumptions), ("Common mistakes, corrected", corrections)):
        if notes:
            out.print()
            out.print(title, style="bold")
        for note in notes:
            print_wrapped(note, bullet="  • ")


def _headline(plan: SessionPlan) -> str:
    workload = plan.workload
    return f"{plural(workload.sessions, 'session')} of {plural(workload.steps, 'step')} on one {plan.gpu.name}"


def _setting(plan: SessionPlan) -> str:
    workload, precision = plan.workload, plan.precision
    width, height = workload.screen
    return (
        f"A step adds a {width}x{height} screenshot ({workload.tokens_per_image:,} tokens"
        f"{', as text' if workload.text_only else ''}) and {workload.text_tokens:,} tokens of text, and generates"
        f" {workload.generated_tokens:,}. Weights {precision.weights}, KV {precision.kv}, state"
        f" {precision.state_bits} bit, {plan.memory.checkpoints} more kept per session for going back. Sizes are"
        " binary: 1 GiB = 2^30 bytes."
    )


def _table(plans: list[SessionPlan]) -> Table:
    table = plain_table()
    # The labels keep their lines; where space is short the model names are broken instead.
    table.add_column("", no_wrap=True)
    for each in plans:
        table.add_column(each.model.name, justify="right", overflow="fold")
    _section(table, plans, "Memory", _memory_rows(plans))
    if any(each.cost for each in plans):
        _section(table, plans, "GPU time of one agent step", _cost_rows(plans))
        _section(table, plans, "Limits of one GPU", _limit_rows())
    return table


def _section(table: Table, plans: list[SessionPlan], title: str, rows: list[tuple[str, Cell]]) -> None:
    if table.row_count:
        table.add_section()
        table.add_row("")
    table.add_row(f"[bold]{title}[/bold]")
    for label, cell in rows:
        table.add_row(f"  {label}", *(cell(each) for each in plans))


def _memory_rows(plans: list[SessionPlan]) -> list[tuple[str, Cell]]:
    mean, end = (_token_label(plans, name) for name in ("mean_tokens", "end_tokens"))
    count = plural(plans[0].workload.sessions, "session")
    rows: list[tuple[str, Cell]] = [
        ("GPU", lambda p: size(p.memory.gpu_bytes)),
        ("weights", lambda p: size(p.memory.weight_bytes)),
        ("workspace kept back", lambda p: size(p.memory.reserve_bytes)),
        ("free for sessions", lambda p: size(p.memory.free_bytes)),
        ("KV per token", lambda p: f"{p.memory.kv_bytes_per_token:,} B"),
        ("SSM state per session, 16 / 32 bit", _state),
        (
            "copies of the state, checkpoints counted",
            lambda p: f"{1 + p.memory.checkpoints}" if p.is_hybrid else "none",
        ),
        ("conv state per session", lambda p: size(p.memory.conv_bytes) if p.is_hybrid else "none"),
        (f"session, mean age{mean}", lambda p: size(p.memory.mean_session_bytes)),
        (f"session, at its end{end}", lambda p: size(p.memory.end_session_bytes)),
        (f"{count}, mean age", lambda p: size(p.memory.mean_needed_bytes)),
        (f"{count}, all at the end", lambda p: size(p.memory.end_needed_bytes)),
        ("sessions that fit, mean age", lambda p: f"{p.memory.mean_fit:,}"),
        ("sessions that fit, all at the end", lambda p: f"{p.memory.end_fit:,}"),
    ]
    if any(each.memory.offloaded and each.cost for each in plans):
        rows.append(("sessions offloaded to host memory", lambda p: f"{p.memory.offloaded:,}" if p.cost else NOTHING))
        rows.append(("bringing one back", lambda p: milliseconds(p.memory.restore_seconds) if p.cost else NOTHING))
    return rows


def _state(plan: SessionPlan) -> str:
    if not plan.is_hybrid:
        return "none"
    narrow, wide = (plan.model.ssm_values * width / 2**20 for width in (2, 4))
    return f"{narrow:,.4g} / {wide:,.4g} MiB"


def _token_label(plans: list[SessionPlan], name: str) -> str:
    """How many tokens, where that is the same for all columns."""
    counts = {getattr(each.memory, name) for each in plans}
    return f" ({counts.pop():,} tokens)" if len(counts) == 1 else ""


def _cost_rows(plans: list[SessionPlan]) -> list[tuple[str, Cell]]:
    new = {each.workload.new_tokens for each in plans}
    prefill = f"prefill {new.pop():,} tokens" if len(new) == 1 else "prefill"
    generated = plans[0].workload.generated_tokens
    return [
        (f"{prefill}: matrices", _seconds("prefill_matrices")),
        ("prefill: attention over the history", _seconds("prefill_attention")),
        ("prefill: Mamba-2 scan", _seconds("prefill_scan")),
        ("vision", _seconds("vision")),
        (f"decode {generated:,} tokens: weights", _seconds("decode_weights", "decode_head")),
        ("decode: states, read and written", _seconds("decode_states")),
        ("decode: KV, read", _seconds("decode_kv")),
        ("[bold]whole step[/bold]", _seconds("total")),
    ]


def _limit_rows() -> list[tuple[str, Cell]]:
    return [
        ("sessions decoding together", _of_cost(lambda cost: f"{cost.batch:,}")),
        ("[bold]agent steps/s[/bold]", _of_cost(lambda cost: rate(cost.steps_per_second))),
        ("decode tokens/s", _of_cost(lambda cost: f"{cost.decode_tokens_per_second:,.0f}")),
        ("logical tokens/s", _of_cost(lambda cost: f"{cost.logical_tokens_per_second:,.0f}")),
        (
            "steps/s if history is prefilled anew",
            lambda p: rate(p.stateless.steps_per_second) if p.stateless else NOTHING,
        ),
    ]


def _of_cost(text: Callable[[StepCost], str]) -> Cell:
    return lambda plan: text(plan.cost) if plan.cost else NOTHING


def _seconds(*names: str) -> Cell:
    """Parts of the cost, added up; one that does not exist in this model is shown as nothing rather than as zero."""

    def text(cost: StepCost) -> str:
        seconds = sum(getattr(cost, name) for name in names)
        return milliseconds(seconds) if seconds else NOTHING

    return _of_cost(text)
