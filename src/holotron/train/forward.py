"""The model over a training batch: its own layers and vision tower, in the form that compiles.

Shapes as in `batches`, and D hidden size, W tower width, V values per patch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from itertools import accumulate
from typing import Any, Literal, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from holotron.model.batch import Batch
from holotron.model.config import VisionConfig
from holotron.model.decoder import Layer
from holotron.model.model import Model
from holotron.model.qwen_vision import QwenVisionTower
from holotron.model.tiling import patches_of_whole_images
from holotron.model.vision import VisionTower
from holotron.ops import move_rows
from holotron.train.batches import TrainingBatch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

Recompute = Literal["none", "selective", "half", "mamba", "full"]
# Full in all Mamba layers, or in every second of them, and in the tower; selective elsewhere.
PARTLY = ("half", "mamba")
_ATEN = torch.ops.aten
# What is always kept: attention takes the longest for its size, and the more so the longer sequences are.
ATTENTION = {_ATEN._scaled_dot_product_flash_attention.default, _ATEN._flash_attention_forward.default}
if hasattr(torch.ops.holotron, "bounded_attention"):  # where there is a GPU
    ATTENTION |= {torch.ops.holotron.bounded_attention.default, torch.ops.holotron.even_attention.default}
# What "selective" keeps: most of the time and, in 16 bits, little of the memory of a layer.
PRODUCTS = ATTENTION | {_ATEN.mm.default, _ATEN.addmm.default, torch.ops.holotron.low_rank_linear.default}


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Shapes are fixed by the budget, so one compilation serves all batches."""
    return torch.compile(function, dynamic=False)


def prepare_layers(model: Model, recompute: Recompute = "none", compile_them: bool = False) -> None:
    """Have layers and the tower's blocks compute again for their gradients what they do not keep, and compile them.

    Each kind is compiled once for all of it: in seconds rather than minutes.
    """
    forwards: dict[tuple[type[nn.Module], Recompute], Callable[..., object]] = {}
    blocks = model.vision.blocks if model.vision is not None else ()
    of_blocks: Recompute = "full" if recompute in PARTLY else recompute
    choices = [*layer_choices(model.config.pattern, recompute), *[of_blocks] * len(blocks)]
    for module, choice in zip((*model.decoder.layers, *blocks), choices, strict=True):
        key = type(module), choice
        if key not in forwards:
            forward = recomputed(*key)
            forwards[key] = compiled(forward) if compile_them else forward
        module.forward = partial(forwards[key], module)


def layer_choices(pattern: str, recompute: Recompute) -> list[Recompute]:
    """What each layer of a decoder computes again."""
    if recompute not in PARTLY:
        return [recompute] * len(pattern)
    every = 2 if recompute == "half" else 1
    mambas = accumulate(symbol == "M" for symbol in pattern)
    return [
        "full" if symbol == "M" and count % every == 0 else "selective"
        for symbol, count in zip(pattern, mambas, strict=True)
    ]


def recomputed(kind: type[nn.Module], recompute: Recompute) -> Callable[..., object]:
    """The forward of layers or blocks with what its gradient needs computed again.

    That is all of it but results of attention, or all but results of matrix products.
    """
    if recompute == "none":
        return kind.forward
    kept = partial(_keep, ATTENTION if recompute == "full" else PRODUCTS)
    contexts = partial(create_selective_checkpoint_contexts, kept)

    def again(function: Callable[..., Result], *args: Any) -> Result:
        out: Result = checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)
        return out

    def layer(module: Layer, x_TD: Tensor, delta_TD: Tensor | None, batch: Batch, _: None) -> tuple[Tensor, Tensor]:
        # Summed here, one tensor is kept for each layer, not two.
        x_TD = x_TD if delta_TD is None else x_TD + delta_TD
        return x_TD, again(_mix, module, x_TD, batch)

    def block(*args: Any) -> object:
        return again(kind.forward, *args)

    return layer if kind is Layer else block


def _mix(layer: Layer, x_TD: Tensor, batch: Batch) -> Tensor:
    out: Tensor = layer.mixer(layer.norm(x_TD), batch, None)
    return out


def _keep(kept: Collection[object], ctx: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE


def encode_images(model: Model, batch: TrainingBatch, patches_PV: Tensor, positions_PW: Tensor) -> Tensor:
    """Token embeddings [M, D] of all images; with deepstack, what deeper layers are given follows each."""
    return project(model, run_tower(model, batch, patches_PV, positions_PW))


def run_tower(model: Model, batch: TrainingBatch, patches_PV: Tensor, positions_PW: Tensor) -> Tensor:
    """The features [M, F] of all images, which a projector makes embeddings of where the model has one."""
    assert model.vision is not None
    assert batch.images is not None
    return model.vision.encode_packed(patches_PV, positions_PW, batch.images)


def project(model: Model, features_MF: Tensor) -> Tensor:
    return features_MF if model.projector is None else model.projector(features_MF)


def hidden_of_learned(model: Model, batch: TrainingBatch, images_MD: Tensor | None) -> Tensor:
    """What the head is given [N, D] at each row that a learned token follows; `images_MD` is None without vision."""
    x_TD = model.decoder.embeddings(batch.token_ids_T)
    deeper: list[Tensor] = []
    if images_MD is not None:
        there, back = (batch.image_row_T, batch.is_image_T), (batch.image_token_MR, batch.is_image_token_MR)
        parts = images_MD.to(x_TD.dtype).chunk(1 + model.config.deepstack_layers, dim=1)
        placed_TD, *deeper = (move_rows(part_MD, *there, *back) for part_MD in parts)
        x_TD = torch.where(batch.is_image_T[:, None], placed_TD, x_TD)
    out: Tensor = model.decoder(x_TD, batch.text, rows_N=batch.rows_N, deepstack_KTD=deeper or None)
    return out


def prepare_patches(
    batch: TrainingBatch, vision: VisionConfig, most: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """The normalised patches of all images, [most, V]."""
    out = torch.zeros(most, vision.patch_values, dtype=dtype, device=device)
    filled = 0
    for pixels, grid in zip(batch.pixels, batch.grids, strict=True):
        patches = patches_of_whole_images(pixels.to(device, non_blocking=True), grid, vision)
        out[filled : filled + len(patches)] = patches
        filled += len(patches)
    return out


def place_patches(batch: TrainingBatch, tower: VisionTower | QwenVisionTower, most: int) -> Tensor:
    """The position embeddings of all patches, [most, W]; one row of zeros where the tower has no table of them."""
    if tower.position_table is None:
        return torch.zeros(1, tower.config.width, device=tower.patch_embed.weight.device)
    parts = [
        tower.positions(grid).repeat(len(pixels), 1) for pixels, grid in zip(batch.pixels, batch.grids, strict=True)
    ]
    # Without pictures its gradient is of zeros, not missing: ranks add theirs up.
    placed = torch.cat(parts) if parts else tower.position_table.reshape(-1, tower.config.width)[:0]
    return F.pad(placed, (0, 0, 0, most - len(placed)))
