"""The model that a run begins with: whole in one process, and over several each one's part of every weight.

Of many ranks none ever has the whole model: it is described without memory, split, and each rank then reads or draws
the rows that are its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from holotron.model.checkpoint.reader import OpenCheckpoint, open_checkpoint
from holotron.model.checkpoint.rows import read_rows
from holotron.model.config import ModelConfig
from holotron.model.initialize import random_model, random_weights
from holotron.model.loading import find_checkpoint, load
from holotron.model.model import Model
from holotron.model.parameters import parameter_type, place
from holotron.train.lora import add_lora, draw_lora
from holotron.train.optimizer import trained
from holotron.train.parallel import local, own_rows
from holotron.train.recipe import Recipe, RecipeError


def kept_type(recipe: Recipe, device_type: str) -> torch.dtype | None:
    """What weights are read in, None is as they are stored: what does not learn stays so where 16 bits are asked for.

    CPUs are several times faster with 32 bits where they have no arithmetic of 16, and do not mix the two.
    """
    as_stored = recipe.lora.rank or (recipe.frozen and device_type == "cuda")
    return None if recipe.dtype == "bfloat16" and as_stored else torch.float32


def choose_learned(model: Model, recipe: Recipe) -> None:
    """Have what the recipe says learn, in float32, and nothing else."""
    if recipe.lora.rank:
        add_lora(model, recipe.lora, recipe.seed)
        return
    for name, parameter in model.named_parameters():
        if name.startswith(tuple(f"{part}." for part in recipe.frozen)):
            parameter.requires_grad_(False)
        else:
            parameter.data = parameter.data.float()
    if not trained(model):
        raise RecipeError(f"frozen is {', '.join(recipe.frozen)}: nothing is left to learn")


class StartingModel:
    """in_parts: `model` has no memory yet; when it has been sharded, `fill` gives it its weights."""

    def __init__(self, recipe: Recipe, config: ModelConfig, device: torch.device, in_parts: bool) -> None:
        self._recipe, self._config, self._device, self._in_parts = recipe, config, device, in_parts
        self._stays = kept_type(recipe, device.type)
        self._checkpoint: OpenCheckpoint | None = None
        self._stored: list[str] = []  # names of what the checkpoint has
        self._added: dict[str, Tensor] = {}
        self.model = self._described() if in_parts else self._whole()
        self.model.config = config
        if self.model.vision is not None and config.vision is not None:
            self.model.vision.config = config.vision
        choose_learned(self.model, recipe)

    def add(self, name: str, module: nn.Module) -> None:
        """Make a small module, which each rank has whole, a part of the model."""
        if self._in_parts:
            self._added |= {f"{name}.{key}": p.detach().clone() for key, p in module.named_parameters()}
        self.model.add_module(name, module.to("meta" if self._in_parts else self._device))

    @torch.no_grad()
    def fill(self) -> None:
        """Give each parameter of the sharded model memory on the device, with this rank's part of its values."""
        model = self.model.to_empty(device=self._device)
        if self._config.tied_embeddings:
            model.decoder.lm_head.weight = model.decoder.embeddings.weight
        for parameter in model.parameters():
            local(parameter).zero_()
        if self._checkpoint is not None:
            for name in self._stored:
                parameter = model.get_parameter(name)
                read_rows(self._checkpoint, name, own_rows(parameter)[0], local(parameter))
        for name, values in self._drawn():
            start, stop = own_rows(model.get_parameter(name))
            local(model.get_parameter(name)).copy_(values[start:stop])

    def _whole(self) -> Model:
        recipe = self._recipe
        if recipe.random:
            return random_model(self._config, self._device, self._stays or torch.bfloat16, recipe.seed)
        return load(find_checkpoint(recipe.starting_point), self._device, self._stays)

    def _described(self) -> Model:
        if self._recipe.random:
            with torch.device("meta"):
                model, dtype = Model(self._config), self._stays or torch.bfloat16
        else:
            self._checkpoint = open_checkpoint(find_checkpoint(self._recipe.starting_point), self._stays)
            model, dtype = self._checkpoint.model, self._checkpoint.dtype
            self._stored = [name for name, _ in model.named_parameters()]
        for name, parameter in list(model.named_parameters()):
            place(model, name, torch.empty_like(parameter, dtype=parameter_type(name, dtype)))
        return model

    def _drawn(self) -> Iterator[tuple[str, Tensor]]:
        """What is not read, one after another and each whole for a moment."""
        if self._recipe.random:
            with torch.device("meta"):
                shape = Model(self._config)
            yield from random_weights(shape, self._device, self._stays or torch.bfloat16, self._recipe.seed)
        yield from draw_lora(self.model, self._recipe.seed)
        yield from self._added.items()
