"""A step of an agent, told in a line or three."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from holotron.agent.agent import StepRecord


def tell_step(out: Console, step: StepRecord) -> None:
    from holotron.actions.describe import describe

    what = describe(step.action) if step.action is not None else f"no action: {step.error}"
    seconds = step.timings.total
    out.print(f"{step.index + 1:3d}  {seconds:5.1f} s  {what}", markup=False)
    if step.thought:
        out.print(f"             {step.thought}", style="dim", markup=False)
    if step.action is not None and step.error:
        out.print(f"             {step.error}", style="yellow", markup=False)
