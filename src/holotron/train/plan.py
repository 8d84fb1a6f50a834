"""What a training step needs on each GPU: memory by part and seconds, from the model's shape and a recipe's options.

Weights, gradients and what the optimiser keeps are counted on the model itself, described without memory; activations
by what layers keep. What is assumed stands in `plan_constants`.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, get_args

import torch
from torch import nn

from holotron.model.config import ModelConfig
from holotron.model.grids import image_grids
from holotron.model.model import Model
from holotron.model.parameters import parameter_type, place
from holotron.ops import FixedPacking
from holotron.plan.errors import PlanError
from holotron.plan.gpus import Gpu
from holotron.plan.workload import Workload
from holotron.train.flops import Passes, recomputed_flops, tower_attention_flops, training_flops
from holotron.train.forward import PARTLY, Recompute, layer_choices
from holotron.train.loss import MOST_LOGITS
from holotron.train.optimizer import OptimizerConfig, make_optimizers, trained
from holotron.train.plan_constants import ASSUMED, TrainingConstants
from holotron.train.recipe import DataSource, Recipe
from holotron.train.starting_model import choose_learned, kept_type

HALF, FULL = 2, 4  # bytes of a value


@dataclass(frozen=True)
class TrainingSetup:
    """tokens: of a batch, of which each GPU has one. The rest is as in a recipe."""

    recipe: Recipe
    tokens: int
    gpus: int = 1
    screen: tuple[int, int] = (1920, 1080)
    text_only: bool = False

    def __post_init__(self) -> None:
        for name in ("tokens", "gpus"):
            if getattr(self, name) < 1:
                raise PlanError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes on one GPU. gathered: weights of other ranks while a layer runs. working: of the layer in hand."""

    weights: float
    gradients: float
    optimizer: float
    average: float
    gathered: float
    activations: float
    working: float
    logits: float
    images: float

    @property
    def allocated(self) -> float:
        """What PyTorch has at the peak of a step: at the logits, in the first layer of the way back or in its last."""
        stays = self.weights + self.optimizer + self.average + self.gathered + self.images
        return stays + max(self.gradients + self.working, self.activations + max(self.working, self.logits))


@dataclass(frozen=True)
class TrainingTime:
    """Seconds of one step on one GPU. Messages between GPUs run beside the arithmetic."""

    products: float
    recomputed: float
    between: float
    optimizer: float
    messages: float

    @property
    def total(self) -> float:
        return max(self.products + self.recomputed + self.between, self.messages) + self.optimizer


class TrainingPlan:
    """One setup of a model on a GPU."""

    def __init__(
        self, config: ModelConfig, gpu: Gpu, setup: TrainingSetup, constants: TrainingConstants = ASSUMED
    ) -> None:
        self.config, self.gpu, self.setup, self.constants = config, gpu, setup, constants
        self.batch = _batch(config, setup)
        self.model = _described(config, setup.recipe)

    def changed(self, **changes: Any) -> TrainingPlan:
        """Another setup in which the same parameters learn."""
        other = copy(self)
        other.setup = replace(self.setup, **changes)
        other.batch = _batch(self.config, other.setup)
        for part in ("memory", "time"):
            other.__dict__.pop(part, None)
        return other

    @cached_property
    def memory(self) -> TrainingMemory:
        c, recipe, gpus = self.constants, self.setup.recipe, self.setup.gpus
        learned = list(trained(self.model).values())
        held = sum(p.nbytes for p in self.model.parameters())
        moments = sum(
            p.numel() * FULL * (1 if type(optimizer).__name__ == "Muon" else 2)
            for optimizer in make_optimizers(self.model, recipe.optimizer)
            for group in optimizer.param_groups
            for p in group["params"]
        )
        numbers = sum(p.numel() for p in learned)
        return TrainingMemory(
            weights=held / gpus,
            gradients=sum(p.nbytes for p in learned) / gpus,
            optimizer=moments / gpus,
            average=FULL * numbers / gpus if recipe.optimizer.average else 0.0,
            gathered=self._gathered() if gpus > 1 else 0.0,
            activations=self._activations(),
            working=c.working * self._working(),
            logits=min(self.learned_tokens * self.config.vocab_size, MOST_LOGITS) * c.logit_bytes,
            images=self._images(),
        )

    @cached_property
    def time(self) -> TrainingTime:
        c, gpu, recipe, batch = self.constants, self.gpu, self.setup.recipe, self.batch
        passes = Passes.of(self.model)
        flops = training_flops(self.config, batch, passes)
        tower = self.config.vision
        seen = training_flops(self.config, batch, Passes(passes.vision, 0.0, 0.0)) if tower else 0.0
        # Images of one size have a faster kernel.
        attended = tower_attention_flops(tower, batch, passes) if tower and tower.mode != "tiles" else 0.0
        again = recomputed_flops(
            self.config, batch, Passes(1.0) if recipe.recompute in PARTLY else passes, recipe.recompute
        )
        runs = 3.0 if recipe.recompute == "none" else 4.0  # of a layer: forward, again, and twice as much backward
        values = sum(kept_bytes(self.config, s, "none", HALF, HALF, c) for s in self.config.pattern)
        learned = trained(self.model).values()
        numbers = sum(p.numel() for p in learned) / self.setup.gpus
        per_number = c.optimizer_bytes + (c.average_bytes if recipe.optimizer.average else 0.0)
        others = (self.setup.gpus - 1) / self.setup.gpus
        sent = others * (2 * sum(p.nbytes for p in self.model.parameters()) + sum(p.nbytes for p in learned))
        return TrainingTime(
            products=((flops - seen) / c.products + (seen - attended) / c.vision + attended / c.attention)
            / gpu.bf16_flops,
            recomputed=again / (gpu.bf16_flops * c.products),
            between=c.moved * runs * values * self.setup.tokens / (gpu.bandwidth * c.bandwidth),
            optimizer=per_number * numbers / (gpu.bandwidth * c.bandwidth),
            messages=sent / c.link,
        )

    @property
    def room(self) -> float:
        """Bytes that a step may allocate."""
        return self.gpu.memory_bytes * (1 - self.constants.fragmentation) - self.constants.context

    @property
    def fits(self) -> bool:
        return self.memory.allocated <= self.room

    @property
    def learned_tokens(self) -> int:
        return int(self.batch.weights_N.sum())

    @property
    def tokens_per_second(self) -> float:
        """Of all GPUs."""
        return float(self.setup.gpus * self.setup.tokens / self.time.total)

    @property
    def share_of_peak(self) -> float:
        flops = training_flops(self.config, self.batch, Passes.of(self.model))
        return float(flops / self.time.total / self.gpu.bf16_flops)

    def to_dict(self) -> dict[str, Any]:
        recipe = self.setup.recipe
        return {
            "model": self.config.name,
            "gpu": self.gpu.name,
            "gpus": self.setup.gpus,
            "tokens": self.setup.tokens,
            "lora": recipe.lora.rank,
            "frozen": list(recipe.frozen),
            "recompute": recipe.recompute,
            "optimizer": recipe.optimizer.kind,
            "parameters": sum(p.numel() for name, p in self.model.named_parameters() if "lora_" not in name),
            "learned_parameters": sum(p.numel() for p in trained(self.model).values()),
            "memory_bytes": {**asdict(self.memory), "allocated": self.memory.allocated, "room": self.room},
            "seconds": {**asdict(self.time), "total": self.time.total},
            "tokens_per_second": self.tokens_per_second,
            "share_of_peak": self.share_of_peak,
            "fits": self.fits,
        }

    def recipe_lines(self) -> list[str]:
        """What to write into a recipe."""
        recipe, batch = self.setup.recipe, self.batch
        frozen = ", ".join(f'"{part}"' for part in recipe.frozen)
        learned = -(-max(1, self.learned_tokens) // 256) * 256
        lines = [f'recompute = "{recipe.recompute}"', "compile = true", *([f"frozen = [{frozen}]"] if frozen else [])]
        lines += ["[batch]", f"tokens = {self.setup.tokens}", f"longest = {self.setup.tokens}"]
        lines += [f"learned = {min(learned, self.setup.tokens)}", f"patches = {batch.used_patches}"]
        lines += [f"images = {sum(map(len, batch.pixels))}"]
        lines += ["[optimizer]", f'kind = "{recipe.optimizer.kind}"', f"average = {recipe.optimizer.average}"]
        lines += ["[lora]", f"rank = {recipe.lora.rank}"] if recipe.lora.rank else []
        targets = ", ".join(f'"{name}"' for name in recipe.lora.targets)
        return lines + ([f"targets = [{targets}]"] if targets else [])

    # ---- parts of the memory ----

    @property
    def _stream(self) -> int:
        """Bytes of a value of the residual stream, which has the type of the embeddings."""
        return int(self.model.decoder.embeddings.weight.dtype.itemsize)

    def _choices(self) -> Iterable[tuple[str, str]]:
        pattern = self.config.pattern
        return zip(pattern, layer_choices(pattern, self.setup.recipe.recompute), strict=True)

    def _activations(self) -> float:
        kept = (
            kept_bytes(self.config, symbol, choice, HALF, self._stream, self.constants)
            for symbol, choice in self._choices()
        )
        return self.setup.tokens * sum(kept)

    def _working(self) -> float:
        """What one layer needs for its gradient, beyond what is kept of it."""
        largest = 0.0
        for symbol, choice in set(self._choices()):
            parts = ("none", choice)
            whole, kept = (kept_bytes(self.config, symbol, p, HALF, self._stream, self.constants) for p in parts)
            largest = max(largest, whole - kept)
        return self.setup.tokens * largest

    def _images(self) -> float:
        """Patches, what the tower makes of them, and of a tower that learns what its blocks keep."""
        tower = self.config.vision
        if tower is None or not self.batch.used_patches:
            return 0.0
        block = HALF * (4 * tower.width + (3 if tower.gated else 2) * tower.mlp_size)
        learns = any(p.requires_grad for name, p in self.model.named_parameters() if name.startswith("vision."))
        of_patch = float(HALF * tower.patch_values)  # of a tower that does not learn, the rest is gone by then
        if learns:
            keeps_all = self.setup.recipe.recompute == "none"
            # Else its input and the results of attention.
            of_patch += tower.depth * (block + HALF * 4 * tower.width if keeps_all else 2 * HALF * tower.width)
        projector = HALF * (tower.shuffled_width + 2 * tower.projector_size + self.config.hidden_size)
        return float(self.batch.used_patches * (of_patch + projector / 4))

    def _gathered(self) -> float:
        """A layer's weights while it runs and the next one's, and all that is outside of layers."""
        blocks: list[nn.Module] = [] if self.model.vision is None else list(self.model.vision.blocks)
        sizes = [sum(p.nbytes for p in group.parameters()) for group in (*blocks, *self.model.decoder.layers)]
        whole = sum(p.nbytes for p in self.model.parameters())
        return float(2 * max(sizes) + whole - sum(sizes))


def kept_bytes(
    config: ModelConfig, symbol: str, recompute: str, value: int, stream: int, constants: TrainingConstants
) -> float:
    """What a layer keeps for its gradient, for each token."""
    d = config.hidden_size
    if recompute == "full":
        kept = config.attention if symbol == "*" and value == HALF else None
        return stream * d + (value * kept.heads * kept.head_dim if kept else 0)
    every = recompute == "none"  # else the results of products
    last = d * (constants.last if value == HALF else 1)
    if symbol == "M" and (m := config.mamba):
        if not every:
            return stream * d + value * (m.projection_size + last)
        # Pairs of tokens in a chunk for each head, B and C for each head, and the states between chunks.
        pairs, wide, states = m.heads * m.chunk_size, m.heads * m.state_size, m.inner_size * m.state_size / m.chunk_size
        inside = 5 * pairs + 3.3 * wide + 3 * states + 3 * m.inner_size
        scanned = constants.scan_bytes if value == HALF else float(value)
        return stream * d + value * (2 * m.projection_size + 4 * m.conv_channels) + scanned * inside
    if symbol == "*" and (a := config.attention):
        heads, both = a.heads * a.head_dim, (a.heads + 2 * a.kv_heads) * a.head_dim
        return stream * d + value * ((2 * both + 2 * heads + d) if every else (both + heads + last))
    if symbol == "-" and (f := config.mlp):
        products = f.size * (2 if f.gated else 1)
        return stream * d + value * ((2 * products + 2 * d) if every else (products + last))
    assert config.moe is not None
    e = config.moe
    products = (e.experts_per_token * e.expert_size + e.shared_size) * (2 if e.gated else 1)
    routed = e.experts_per_token * (e.latent_size or d) + (e.latent_size or 0)
    if not every:
        return stream * d + value * (products + routed + last)
    return stream * d + value * (2 * products + 3 * routed + 2 * d) + FULL * 3 * e.experts


def suggestions(plan: TrainingPlan) -> tuple[TrainingPlan | None, list[str]]:
    """The setup that keeps the most and fits, with as few changes as that takes; and what else would make it fit."""
    setup, recipe = plan.setup, plan.setup.recipe
    for recompute in get_args(Recompute):  # from the most memory to the least
        tried = plan.changed(recipe=replace(recipe, recompute=recompute))
        if tried.fits:
            return tried, []
    least = replace(recipe, recompute="full")
    ways = []
    for gpus in (2**power for power in range(1, 11)):
        if gpus > setup.gpus and plan.changed(recipe=least, gpus=gpus).fits:
            ways.append(f"{gpus} GPUs")
            break
    tokens = setup.tokens // 2
    while tokens >= 1024 and not plan.changed(recipe=least, tokens=tokens).fits:
        tokens //= 2
    if tokens >= 1024:
        ways.append(f"{tokens:,} tokens a batch")
    if not recipe.lora.rank:
        low_rank = replace(least, lora=replace(recipe.lora, rank=16), frozen=())
        if TrainingPlan(plan.config, plan.gpu, replace(setup, recipe=low_rank), plan.constants).fits:
            ways.append("low-rank changes (--lora 16)")
    return None, ways


def planned_recipe(
    name: str,
    *,
    lora: int = 0,
    targets: tuple[str, ...] = (),
    frozen: tuple[str, ...] = (),
    recompute: str = "full",
    optimizer: str = "adamw",
    average: float = OptimizerConfig.average,
) -> Recipe:
    """A recipe with these options; what it learns from is left open."""
    from holotron.train.lora import LoraConfig

    if recompute not in get_args(Recompute):
        raise PlanError(f"recompute is {recompute!r}; known are {', '.join(get_args(Recompute))}")
    return Recipe(
        name="plan",
        stage="navigation",
        start=name,
        steps=1,
        data=(DataSource(shards="-"),),
        recompute=recompute,  # type: ignore[arg-type]
        frozen=frozen,
        lora=LoraConfig(lora, targets=targets),
        optimizer=OptimizerConfig(kind=optimizer, average=average),  # type: ignore[arg-type]
    )


def _described(config: ModelConfig, recipe: Recipe) -> Model:
    """The model of a run on a GPU, without memory."""
    with torch.device("meta"):
        model = Model(config)
    dtype = kept_type(recipe, "cuda") or torch.bfloat16
    for name, parameter in list(model.named_parameters()):
        place(model, name, torch.empty_like(parameter, dtype=parameter_type(name, dtype)))
    choose_learned(model, recipe)
    return model


def _batch(config: ModelConfig, setup: TrainingSetup) -> Any:
    """A batch of one episode that fills it: what counting arithmetic asks of one."""
    work = Workload(screen=setup.screen, text_only=setup.text_only).resolved(config)
    steps = max(1, (setup.tokens - work.system_tokens) // work.step_tokens)
    shown = steps if config.vision is not None and not setup.text_only else 0
    grids = image_grids(*setup.screen, config.vision) if config.vision is not None and shown else ()
    pixels, sizes = [range(shown * grids.count(grid)) for grid in dict.fromkeys(grids)], list(dict.fromkeys(grids))
    packing = FixedPacking(torch.tensor([0, setup.tokens]), setup.tokens)
    return SimpleNamespace(
        used_tokens=setup.tokens,
        used_patches=shown * sum(rows * columns for rows, columns in grids),
        weights_N=torch.tensor(float(min(setup.tokens, steps * work.generated_tokens))),
        text=SimpleNamespace(packing=packing),
        pixels=pixels,
        grids=sizes,
    )
