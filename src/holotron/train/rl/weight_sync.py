"""Weights on their way from the trainer to the engine of the same process, and the proof that they arrived."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from holotron.engine.engine import Engine
from holotron.model.adapters import held_changes
from holotron.model.checkpoint.adapter import A, B, LowRank
from holotron.model.model import Model
from holotron.model.parameters import place
from holotron.ops.recording import wait_for_device
from holotron.train.learner import Learner
from holotron.train.lora import LoraExperts, LoraLinear, merged
from holotron.train.meter import TrainingError
from holotron.train.optimizer import trained

POLICY = "policy"  # what the engine calls the adapter
# Of each width of a number, the whole number of as many bits.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def send_weights(learner: Learner, engine: Engine, version: int) -> str:
    """Give the engine the weights as they are now; their checksum, which what it then holds has, too.

    Only what learns is sent, of LoRA the adapter: the engine has the rest. TrainingError if it holds something else.
    """
    wait_for_device(learner.device)  # the engine's thread copies them on a stream of its own
    if shares_base(learner):
        changes = changes_of(learner)
        engine.update_adapter(POLICY, changes, epoch=version)
        held = dict(_by_tensor(held_changes(engine.model, POLICY)))
        weights = dict(_by_tensor(changes))
    else:
        weights = {name: weight.detach() for name, weight in weights_of(learner)}
        engine.update_weights(weights, epoch=version)
        held = {name: engine.model.get_parameter(name) for name in weights}
    wait_for_device(learner.device)
    sent = checksum((name, weight.to(held[name].dtype)) for name, weight in weights.items())
    if (arrived := checksum(held.items())) != sent:
        raise TrainingError(
            f"the engine holds other weights ({arrived}) than it was sent ({sent}) as version {version}"
        )
    return sent


def shares_base(learner: Learner) -> bool:
    """Whether an engine can play with the trainer's own frozen weights and the adapter beside them.

    Changes of routed experts cannot be computed beside their weights: they are added to an engine's own.
    """
    return bool(learner.recipe.lora.rank) and not any(isinstance(each, LoraExperts) for each in learner.model.modules())


def served_model(learner: Learner) -> Model:
    """A model for an engine whose weights are the learner's frozen ones, in the same memory."""
    with torch.device("meta"):
        model = Model(learner.model.config)
    for name, _ in list(model.named_parameters()):
        place(model, name, learner.model.get_parameter(name).detach())
    model.source = learner.model.source
    return model.requires_grad_(False).eval()


def changes_of(learner: Learner) -> dict[str, LowRank]:
    """What a LoRA learner adds to each layer, as it computes with it: with the scale in B."""
    layers = ((name, each) for name, each in learner.model.named_modules() if isinstance(each, LoraLinear))
    return {name: LowRank(each.lora_A.detach(), each.scale * each.lora_B.detach()) for name, each in layers}


def _by_tensor(changes: Mapping[str, LowRank]) -> Iterable[tuple[str, Tensor]]:
    for layer, change in changes.items():
        yield from ((f"{layer}.{A}", change.A_RI), (f"{layer}.{B}", change.B_OR))


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
