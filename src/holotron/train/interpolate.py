"""What lies between two checkpoints, one of which was trained on from the other.

A second training on other data forgets some of what the first had learned. Between the two, on a straight line, there
is often a point that has kept the one and has most of the other, and that does better than either on what both have
seen: averaging takes away what each learned by accident.
"""

from __future__ import annotations

from pathlib import Path

import torch

from holotron.agent.policy_format import save_format, stated_format
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.loading import find_checkpoint, load
from holotron.model.parameters import place


class InterpolationError(ValueError):
    """Two checkpoints that nothing lies between."""


def interpolate(first: str | Path, second: str | Path, out: Path, share: float = 0.5) -> Path:
    """Write the weights that are `share` of the way from the first checkpoint to the second; the folder."""
    if not 0 <= share <= 1:
        raise InterpolationError(f"share is {share}; it must lie between 0, the first checkpoint, and 1, the second")
    model, other = (load(name, torch.device("cpu")) for name in (first, second))
    theirs = dict(other.named_parameters())
    ours = dict(model.named_parameters())
    for name in ours.keys() | theirs.keys():
        shapes = [tuple(parts[name].shape) if name in parts else None for parts in (ours, theirs)]
        if shapes[0] != shapes[1]:
            raise InterpolationError(
                f"{first} and {second} are different models: {name} is {shapes[0]} here, {shapes[1]} there"
            )
    for name, weight in ours.items():
        # In 32 bits, also where the files hold 16: half of a 16-bit difference may be nothing.
        between = (1 - share) * weight.detach().float() + share * theirs[name].detach().float()
        place(model, name, between.to(weight.dtype))
    policy_format = stated_format(find_checkpoint(str(first)))
    save_checkpoint(model, out)
    if policy_format is not None:
        save_format(policy_format, out)
    return out
