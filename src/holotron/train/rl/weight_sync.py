"""Weights on their way from the trainer to the engine of the same process, and the proof that they arrived."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

from holotron.engine.engine import Engine
from holotron.model.model import Model
from holotron.train.learner import Learner
from holotron.train.lora import merged
from holotron.train.meter import TrainingError
from holotron.train.optimizer import trained

# Of each width of a number, the whole number of as many bits.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def send_weights(learner: Learner, engine: Engine, version: int) -> str:
    """Give the engine the weights as they are now; their checksum, which what it then holds has, too.

    Only what learns is sent: the engine read the rest where the trainer did. TrainingError if it holds something else.
    """
    weights = {name: weight.detach() for name, weight in weights_of(learner)}
    if learner.device.type == "cuda":  # the engine's thread copies them on a stream of its own
        torch.cuda.synchronize(learner.device)
    engine.update_weights(weights, epoch=version)
    held = dict(engine.model.named_parameters())
    sent = checksum((name, weight.to(held[name].dtype)) for name, weight in weights.items())
    if (arrived := checksum((name, held[name]) for name in weights)) != sent:
        raise TrainingError(
            f"the engine holds other weights ({arrived}) than it was sent ({sent}) as version {version}"
        )
    return sent


def weights_of(learner: Learner) -> Iterable[tuple[str, Tensor]]:
    """The weights that an engine must be told, by the names of a model's parameters: low-rank changes are added."""
    lora, parameters = learner.recipe.lora, trained(learner.model)
    if not lora.rank:
        return parameters.items()
    with torch.device("meta"):
        names = [name for name, _ in Model(learner.model.config).named_parameters()]
    changed = ((name, learner.model.get_parameter(name)) for name in names)
    return ((name, new) for name, old in changed if (new := merged(name, old, parameters, lora.scale)) is not old)


@torch.no_grad()
def checksum(weights: Iterable[tuple[str, Tensor]]) -> str:
    """Of names and the bits of all values; on whatever device they are."""
    found = hashlib.sha256()
    for name, weight in sorted(weights):
        bits = weight.detach().contiguous().view(_BITS[weight.element_size()])
        found.update(f"{name} {tuple(weight.shape)} {int(bits.sum(dtype=torch.int64))};".encode())
    return found.hexdigest()[:16]
