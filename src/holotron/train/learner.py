"""A model that learns: its weights, what is minimised, the optimisers, and the checkpoint that comes of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from holotron.agent.policy_format import NANO, PolicyFormat, find_format, format_of, save_format, stated_format
from holotron.model.checkpoint.config_json import read_config
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.config import ModelConfig
from holotron.model.loading import find_checkpoint
from holotron.model.model import Model
from holotron.model.parameters import parameter_type, place
from holotron.model.presets import preset
from holotron.model.text.chat_template import load_chat_template
from holotron.model.text.conversation import ConversationWriter
from holotron.model.text.policy_tokenizer import policy_template, policy_tokenizer, save_policy_texts
from holotron.model.text.tokenizer import load_tokenizer
from holotron.train.batches import TrainingBatch
from holotron.train.cuda_graph import CudaGraphStep
from holotron.train.feature_cache import FeatureCache, tower_name
from holotron.train.forward import (
    compiled,
    encode_images,
    hidden_of_learned,
    place_patches,
    prepare_layers,
    prepare_patches,
    project,
    run_tower,
)
from holotron.train.lora import merged, save_adapter
from holotron.train.loss import Coordinates, losses_of_hidden, losses_of_learned
from holotron.train.ocr_loss import OcrHead, ocr_loss
from holotron.train.optimizer import Average, make_optimizers, trained
from holotron.train.parallel import Ranks, shard, whole
from holotron.train.recipe import Recipe, RecipeError
from holotron.train.starting_model import StartingModel

ADAPTER = "adapter"
# Parameters of the largest model whose steps are recorded as a CUDA graph.
MOST_RECORDED = 1e9
# What is minimised, and what is said and what is written of it.
Losses = tuple[Tensor, Tensor, Tensor]
Seen = tuple[Tensor, Tensor]
Named = Iterator[tuple[str, Tensor]]
Result = TypeVar("Result")


class Learner:
    """One rank's part of a model that learns by a recipe."""

    def __init__(self, recipe: Recipe, device: torch.device, ranks: Ranks = Ranks()) -> None:
        self.recipe, self.device, self.ranks = recipe, device, ranks
        torch.manual_seed(recipe.seed)
        # What can be refused is refused before a large checkpoint is read.
        self.writer = _writer(recipe)
        self.own_format = _own_format(recipe)
        self.coordinates = Coordinates.of(self.writer.tokenizer, recipe.coordinate_sigma)
        _check(recipe, self.writer.config, self.coordinates)
        start = StartingModel(recipe, self.writer.config, device, in_parts=ranks.size > 1)
        self.model = start.model.train()
        self._ocr_head: OcrHead | None = None
        if recipe.ocr_loss:
            # A part of the model, it learns, is averaged and kept like the rest; what is exported has no place for it.
            self._ocr_head = OcrHead(self.model.config.hidden_size)
            start.add("ocr_head", self._ocr_head)
        self._token_losses, self._ocr_loss = losses_of_learned, ocr_loss
        prepare_layers(self.model, recipe.recompute, recipe.compile)
        if recipe.compile:
            self._token_losses, self._ocr_loss = compiled(losses_of_learned), compiled(ocr_loss)
        self.token_losses: list[Tensor] = []  # of each batch of the last step, where they are at hand
        if ranks.size > 1:
            shard(self.model, device)
            start.fill()
        self.feature_cache = self._open_cache()
        # Experts wait for the host to count their tokens, which a recording cannot; nor can it add to gradients.
        # Kernels of a large model take longer than to start them, and the recording's memory could serve nothing else.
        alone = ranks.size == 1 and recipe.batches == 1 and self.model.vision is not None
        alone = alone and self.model.config.parameters < MOST_RECORDED and self.feature_cache is None
        recorded = recipe.compile and device.type == "cuda" and self.model.config.moe is None and alone
        self.cuda_graph = CudaGraphStep(self._objective_of_seen, trained(self.model).values()) if recorded else None
        self.optimizers = make_optimizers(self.model, recipe.optimizer)
        self.average = Average(self.model, recipe.optimizer.average)

    def learn(self, batches: Sequence[TrainingBatch], step: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """One step over all batches: the losses of what is said and of what is written, and the gradient's norm."""
        self.token_losses.clear()
        if self.cuda_graph:
            [batch], seen = batches, self.see(batches[0])
            assert seen is not None
            _, said, written = self.cuda_graph(batch, *seen)
            self.token_losses.clear()  # its tensors are the same ones every time
        else:
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)
            said, written = self._gradients(batches)
        gradient = self.apply_gradients(step)
        return (self.ranks.mean(said), self.ranks.mean(written)), gradient

    def apply_gradients(self, step: int) -> Tensor:
        """One step of the optimisers along the gradients that are there; their norm before it was clipped."""
        clip = self.recipe.optimizer.clip
        gradient = whole(torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate(step)
            optimizer.step()
        self.average.update(self.model, step)
        return gradient

    def measure(self, batches: Iterable[TrainingBatch]) -> float:
        """The mean loss of what all batches of all ranks would learn; nothing is learned."""
        sums = torch.zeros(2, device=self.device)
        for batch in (batch.to(self.device) for batch in batches):
            # By the forward pass that learns: without gradients, other kernels would be chosen and compiled.
            losses_N, _ = self.run(self._losses, batch)
            sums += torch.stack([(losses_N.detach() * batch.weights_N).sum(), batch.weights_N.sum()])
        self.let_go()
        total, learned = self.ranks.mean(sums).tolist()
        return float(total / max(learned, 1e-9))

    def rate(self, step: int) -> float:
        """The step size of a step, counted from 0."""
        config = self.recipe.optimizer
        return config.rate * config.factor(step, self.recipe.steps)

    def _gradients(self, batches: Sequence[TrainingBatch]) -> tuple[Tensor, Tensor]:
        """The gradients of all batches, summed as if they were one; the losses of what is said and written."""
        learned = self._learned(torch.stack([batch.weights_N.sum() for batch in batches]).sum().to(self.device))
        sums = []
        for batch in batches:
            total, *told = self.objective(batch.to(self.device), learned, len(batches))
            total.backward()
            sums.append(torch.stack([loss.detach() for loss in told]))
        said, written = torch.stack(sums).sum(0)
        return said, written

    def _learned(self, own: Tensor) -> Tensor:
        """What losses are divided by, so that their mean over the ranks is the mean over what all of them learn.

        Gradients are averaged over the ranks as well, so a rank with much to learn counts for more.
        """
        return self.ranks.mean(own).clamp_min(1.0 / self.ranks.size)

    def objective(self, batch: TrainingBatch, learned: Tensor | None = None, batches: int = 1) -> Losses:
        """A batch's share of what is minimised; learned: what all batches of the step learn, else those of this one."""
        return self._sums(*self.run(self._losses, batch), batch, learned, batches)

    def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Something over the whole model, whose weights are gathered for it where ranks share them."""
        found: Result = self.model(function, *arguments) if self.ranks.size > 1 else function(*arguments)
        return found

    def let_go(self) -> None:
        """Of what was gathered for passes that no backward pass followed: until then the parts do not count."""
        if self.ranks.size > 1:
            self.model.reshard()  # type: ignore[operator]

    def _sums(
        self, losses_N: Tensor, written: Tensor, batch: TrainingBatch, learned: Tensor | None, batches: int
    ) -> Losses:
        learned = self._learned(batch.weights_N.sum()) if learned is None else learned
        self.token_losses.append(losses_N.detach())
        said = (losses_N * batch.weights_N).sum() / learned
        written = written / batches
        return said + self.recipe.ocr_loss * written, said, written

    def _losses(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """The loss of each learned token, and that of what is written."""
        return self._losses_of_seen(batch, self.see(batch))

    def see(self, batch: TrainingBatch) -> Seen | None:
        """The patches of a batch and their positions, on the device; None without a tower."""
        tower, most = self.model.vision, self.recipe.batch.patches
        if tower is None:
            return None
        dtype = torch.bfloat16 if self._half else self.model.dtype
        patches = prepare_patches(batch, tower.config, most, self.device, dtype)
        return patches, place_patches(batch, tower, most)

    def _objective_of_seen(self, batch: TrainingBatch, patches_PV: Tensor, positions_PW: Tensor) -> Losses:
        return self._sums(*self._losses_of_seen(batch, (patches_PV, positions_PW)), batch, None, 1)

    def _losses_of_seen(self, batch: TrainingBatch, seen: Seen | None) -> tuple[Tensor, Tensor]:
        with self.precision():
            hidden, images = self.hidden(batch, seen)
            head, targets = self.model.decoder.lm_head, batch.targets_N
            losses = losses_of_hidden(head, hidden, targets, self.coordinates, self._token_losses)
            if self._ocr_head is None or images is None:
                return losses, losses.new_zeros(())
            return losses, self._ocr_loss(self._ocr_head, images, batch.ocr_labels_YG)

    def precision(self) -> AbstractContextManager[object]:
        """Inside, matrix products are computed in the recipe's type."""
        return torch.autocast(self.device.type, torch.bfloat16) if self._half else nullcontext()

    def hidden(self, batch: TrainingBatch, seen: Seen | None) -> tuple[Tensor, Tensor | None]:
        """What the head is given at each learned token, and the embeddings of the images."""
        images = None if seen is None else self._encode(batch, seen)
        return hidden_of_learned(self.model, batch, images), images

    def _encode(self, batch: TrainingBatch, seen: Seen) -> Tensor:
        """Token embeddings of a batch's images."""
        with nullcontext() if self._learns("vision.", "projector.") else torch.no_grad():
            if self.feature_cache is None:
                return encode_images(self.model, batch, *seen)
            with torch.no_grad():
                features = self.feature_cache.features(batch, partial(run_tower, self.model, batch, *seen))
            return project(self.model, features)

    def _open_cache(self) -> FeatureCache | None:
        config = self.recipe.feature_cache
        if not config.folder:
            return None
        if self.model.vision is None or self._learns("vision."):
            reason = "which has no vision tower" if self.model.vision is None else "whose vision tower learns"
            raise RecipeError(
                f"feature_cache is set for {self.model.config.name}, {reason}; leave it out, or freeze the tower: "
                'frozen = ["vision"], or [lora] without targets in it'
            )
        dtype = torch.bfloat16 if self._half else self.model.dtype
        limit = int(config.gibibytes * 2**30)
        return FeatureCache(self.recipe.folder / config.folder, limit, tower_name(self.model, dtype), self.ranks)

    @property
    def _half(self) -> bool:
        return self.recipe.dtype == "bfloat16" and self.device.type == "cuda"

    def _learns(self, *parts: str) -> bool:
        """Whether anything learns in parts of the model, by the beginnings of names."""
        return any(name.startswith(parts) for name in trained(self.model))

    def export(self, folder: Path, dtype: torch.dtype | None = None) -> Path:
        """The averaged weights as a checkpoint folder that the engine can load; all else as it came.

        Without a dtype, in the recipe's. Low-rank changes are added to the weights they belong to, and stand alone in a
        folder beside it, too.
        """
        lora, dtype = self.recipe.lora, dtype or getattr(torch, self.recipe.export_dtype)
        model = self.shape()
        for name, parameter in list(model.named_parameters()):
            place(model, name, torch.empty_like(parameter, dtype=parameter_type(name, dtype)))
        # No rank ever holds more of them than a file has.
        weights = ((name, weight.to("cpu", parameter_type(name, dtype))) for name, weight in self.weights())
        changes = {name: whole(change) for name, change in self.average.weights.items()} if lora.rank else {}
        if not self.ranks.first:
            deque(weights, maxlen=0)
        else:
            save_checkpoint(model, folder, overwrite=True, weights=weights)
            if model.source is None:  # else it has kept its own
                save_policy_texts(model.config, folder)
            taught = {source.format or self.own_format.spec for source in self.recipe.data if source.store} or {"nano"}
            ours = taught == {"nano"} and not self.coordinates.first_ids  # taught as no policy of ours is
            if len(taught) == 1 and not ours and stated_format(folder) is None:
                # A family is often told by the name of its folder, which this one has not.
                wanted, known = find_format(taught.pop()), format_of(folder)
                if known is None or known.spec != wanted.spec:
                    save_format(wanted, folder)
            if lora.rank:
                save_adapter(model, changes, lora, folder.with_name(ADAPTER))
        return folder

    def shape(self) -> Model:
        """The model without memory, and without anything that is there for learning."""
        with torch.device("meta"):
            model = Model(self.model.config)
        model.source = self.model.source
        return model

    def weights(self, averaged: bool = True, merge: bool = True, only: Collection[str] = ()) -> Named:
        """Weights one after another, averaged or those of now, with low-rank changes added or without.

        Each is gathered where ranks share it: all of them must ask.
        """
        learned, lora = self.average.weights if averaged else trained(self.model), self.recipe.lora
        changes = {name: whole(change).detach() for name, change in learned.items()} if lora.rank and merge else {}
        for name in (name for name, _ in self.shape().named_parameters() if not only or name in only):
            weight = whole(learned.get(name, self.model.get_parameter(name))).detach()
            yield name, merged(name, weight, changes, lora.scale) if changes else weight


def _writer(recipe: Recipe) -> ConversationWriter:
    """The model's own tokenizer and chat template; its configuration with the recipe's size of images."""
    if recipe.random:
        config = preset(recipe.start).config
        tokenizer, template = policy_tokenizer(config), policy_template()
    else:
        folder = find_checkpoint(recipe.starting_point)
        config, tokenizer, template = read_config(folder), load_tokenizer(folder), load_chat_template(folder)
    if recipe.max_patches and config.vision is not None:
        config = replace(config, vision=config.vision.shrunk(recipe.max_patches))
    return ConversationWriter(tokenizer, template, config)


def _own_format(recipe: Recipe) -> PolicyFormat:
    """How the model is asked where it is served; a new one, and one of no known family, as our policies are."""
    own = None if recipe.random else format_of(find_checkpoint(recipe.starting_point))
    return own or NANO


def _check(recipe: Recipe, config: ModelConfig, coordinates: Coordinates) -> None:
    vision = config.vision
    if recipe.coordinate_jitter and not coordinates.first_ids:
        raise RecipeError(f"coordinate_jitter needs tokens for coordinates, which {config.name} does not have")
    if recipe.ocr_loss and (vision is None or vision.mode != "dynamic"):
        raise RecipeError(f"ocr_loss needs a vision tower of dynamic resolution, which {config.name} does not have")
    if recipe.max_patches and (vision is None or vision.mode == "tiles"):
        raise RecipeError(f"max_patches needs a vision tower of dynamic resolution, which {config.name} does not have")
