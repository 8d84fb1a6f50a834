"""Weights on their way from the trainer to the engine of the same process, and the proof that they arrived."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from holotron.engine.engine import Engine
from holotron.engine.weights import bit_checksum, by_tensor, held_weights
from holotron.model.checkpoint.adapter import LowRank
from holotron.model.model import Model
from holotron.model.parameters import place
from holotron.ops.recording import wait_for_device
from holotron.train.learner import Learner
from holotron.train.lora import LoraExperts, LoraLinear
from holotron.train.meter import TrainingError
from holotron.train.optimizer import trained
from holotron.train.parallel import whole

POLICY = "policy"  # what the engine calls the adapter


def send_weights(learner: Learner, engine: Engine, version: int) -> str:
    """Give the engine the weights as they are now; their checksum, which what it then holds has, too.

    Only what learns is sent, of LoRA the adapter: the engine has the rest. Of weights that ranks share, each of them
    gathers all for its engine, and all must ask. TrainingError if an engine holds something else.
    """
    wait_for_device(learner.device)  # the engine's thread copies them on a stream of its own
    if shares_base(learner):
        changes = changes_of(learner)
        engine.update_adapter(POLICY, changes, epoch=version)
        held = held_weights(engine.model, POLICY)
        weights = dict(by_tensor(changes))
    else:
        own = engine.model  # in whose type they are held while they are gathered
        weights = {name: weight.detach().to(own.get_parameter(name).dtype) for name, weight in weights_of(learner)}
        engine.update_weights(weights, epoch=version)
        held = {name: engine.model.get_parameter(name) for name in weights}
    wait_for_device(learner.device)
    sent = bit_checksum((name, weight.to(held[name].dtype)) for name, weight in weights.items())
    if (arrived := bit_checksum(held.items())) != sent:
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
    """A model for an engine whose weights are the learner's frozen ones: in the same memory, but for those in parts."""
    model = learner.shape()
    for name, _ in list(model.named_parameters()):
        place(model, name, whole(learner.model.get_parameter(name)).detach())
    return model.requires_grad_(False).eval()


def changes_of(learner: Learner) -> dict[str, LowRank]:
    """What a LoRA learner adds to each layer, as it computes with it: with the scale in B."""
    layers = ((name, each) for name, each in learner.model.named_modules() if isinstance(each, LoraLinear))
    return {
        name: LowRank(whole(each.lora_A).detach(), each.scale * whole(each.lora_B).detach()) for name, each in layers
    }


def weights_of(learner: Learner) -> Iterable[tuple[str, Tensor]]:
    """The weights that an engine must be told, by the names of a model's parameters: low-rank changes are added."""
    if not learner.recipe.lora.rank:
        return learner.weights(averaged=False, only=trained(learner.model))
    changed = set[str]()
    for name, layer in learner.model.named_modules():
        if isinstance(layer, LoraLinear | LoraExperts):
            changed |= {f"{name}.{each}" for each in (layer.lora_A if isinstance(layer, LoraExperts) else ("weight",))}
    return learner.weights(averaged=False, only=changed)
