"""Losses and gradients of a packed batch are transformers' on the same tokens and images.

A model of the 12B's kind, which sees tiles and a thumbnail, and Qwen's vision-language models, which see images scaled.
"""

from __future__ import annotations

import copy
import io
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

pytest.importorskip("transformers")

from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.config import ModelConfig
from holotron.model.grids import image_tokens
from holotron.model.image import load_image
from holotron.model.model import Model
from holotron.model.tiling import ImageProcessor, ProcessedImage
from holotron.train import forward
from holotron.train.batches import BatchBudget, Packer, TrainingBatch
from holotron.train.forward import Recompute, encode_images, hidden_of_learned, place_patches, prepare_patches
from holotron.train.loss import Coordinates, losses_of_hidden, losses_of_learned
from holotron.train.sequences import Picture, Sequence
from tests.model import oracle, qwen_oracle

KINDS = ("tiles", *qwen_oracle.KINDS)
BUDGET = BatchBudget(tokens=512, patches=768, learned=64, sequences=6, images=192)
SIZES = ((16, 24), (40, 16), (24, 24), (16, 64))  # of pictures, in patches of 4 px; of tiles four times that
PICTURES = (0, 3, 1, 2)  # in each sequence


@dataclass(frozen=True)
class Case:
    """A model of transformers, its checkpoint, and what is learned."""

    kind: str
    theirs: torch.nn.Module
    folder: Path
    config: ModelConfig
    sequences: list[Sequence]
    expected: dict[torch.dtype, tuple[float, dict[str, torch.Tensor]]] = field(default_factory=dict)

    @property
    def batch(self) -> TrainingBatch:
        return Packer(self.config, BUDGET).build(self.sequences)

    @property
    def learned(self) -> int:
        return sum(int(sequence.learn.sum()) for sequence in self.sequences)


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    kind: str = request.param
    theirs = oracle.make_omni(4) if kind == "tiles" else qwen_oracle.make_qwen_vl(1, kind)
    folder = oracle.save(theirs, tmp_path_factory.mktemp("model"))
    config = with_small_images(load_checkpoint(folder).config)
    draw = random.Random(kind)
    return Case(kind, theirs, folder, config, [sequence(draw, config, count) for count in PICTURES])


def with_small_images(config: ModelConfig) -> ModelConfig:
    assert config.vision is not None
    if config.vision.mode == "scaled":
        return replace(config, vision=replace(config.vision, min_pixels=64, max_pixels=900))  # type: ignore[call-arg]
    return replace(config, vision=replace(config.vision, mode="tiles", tile_size=32, max_tiles=6))


def sequence(draw: random.Random, config: ModelConfig, count: int) -> Sequence:
    """Text and pictures by turns, and some of the text is learned."""
    assert config.vision is not None
    ids, pictures = [draw.randrange(80) for _ in range(draw.randint(2, 9))], []
    for _ in range(count):
        width, height = (config.vision.patch_size // 4 * side for side in draw.choice(SIZES))
        file = io.BytesIO()
        Image.frombytes("RGB", (width, height), draw.randbytes(3 * width * height)).save(file, "PNG")
        pictures.append(Picture(file.getvalue(), (width, height), config.vision))
        ids += [config.vision.image_token_id] * image_tokens(width, height, config.vision)
        ids += [draw.randrange(80) for _ in range(draw.randint(2, 9))]
    token_ids = np.array(ids)
    learn = (np.array([draw.random() for _ in ids]) < 0.6) & (token_ids != config.vision.image_token_id)
    learn[0] = False
    return Sequence(token_ids, learn, tuple(pictures))


# ---- theirs ----


def their_gradients(case: Case, dtype: torch.dtype, folder: Path) -> tuple[float, dict[str, torch.Tensor]]:
    """The mean loss, and its gradients under our names: written as weights and read by our loader."""
    exactly = dtype == torch.float64
    with oracle.in_float64() if exactly else nullcontext():
        theirs = exact(case) if exactly else copy.deepcopy(case.theirs)
        theirs.train()
        losses = [their_loss(case, theirs, each, dtype) for each in case.sequences]
        loss = torch.stack(losses).sum() / case.learned
        loss.backward()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if name.endswith("lambda1"):  # of a scale that towers here have not, and that is left at 1
                continue
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    read = load_checkpoint(oracle.save(theirs, folder), dtype=dtype)
    return float(loss.detach()), {name: p.detach() for name, p in read.named_parameters()}


def exact(case: Case) -> torch.nn.Module:
    if case.kind != "tiles":
        return qwen_oracle.exactly(case.theirs)
    theirs = copy.deepcopy(case.theirs).double()
    theirs.vision_model.config.torch_dtype = torch.float64
    return theirs


def their_loss(case: Case, theirs: torch.nn.Module, each: Sequence, dtype: torch.dtype) -> torch.Tensor:
    assert case.config.vision is not None
    processor = ImageProcessor(case.config.vision)
    images = [processor(load_image(picture.png)) for picture in each.pictures]
    if case.kind == "tiles":
        inputs = {"input_ids": torch.from_numpy(each.token_ids)[None], "use_cache": False}
        if images:
            inputs["pixel_values"] = torch.cat([patches(image, dtype) for image in images])
            inputs["image_grid_hw"] = torch.tensor([grid for image in images for grid in image.grids])
    else:
        theirs.base_model.rope_deltas = None  # it would remember those of the sequence before
        images = [replace(image, patches=patches(image, dtype)) for image in images]
        inputs = qwen_oracle.their_inputs(each.token_ids.tolist(), images) | {"use_cache": False}
    rows = torch.from_numpy(np.flatnonzero(each.learn))
    logits = theirs(**inputs).logits[0, rows - 1]
    return F.cross_entropy(logits, torch.from_numpy(each.token_ids)[rows], reduction="sum")


def patches(image: ProcessedImage, dtype: torch.dtype) -> torch.Tensor:
    assert image.patches is not None
    return image.patches.to(dtype)


# ---- ours ----


def our_model(case: Case, dtype: torch.dtype) -> Model:
    model = load_checkpoint(case.folder, dtype=dtype).train()
    model.config = case.config
    assert model.vision is not None
    model.vision.config = case.config.vision  # type: ignore[assignment]
    return model


def our_gradients(case: Case, model: Model) -> tuple[float, dict[str, torch.Tensor]]:
    assert model.vision is not None
    batch = case.batch
    seen = prepare_patches(batch, model.vision.config, BUDGET.patches, model.device, model.dtype)
    images = encode_images(model, batch, seen, place_patches(batch, model.vision, BUDGET.patches))
    hidden = hidden_of_learned(model, batch, images)
    losses = losses_of_hidden(model.decoder.lm_head, hidden, batch.targets_N, Coordinates(), losses_of_learned)
    loss = (losses * batch.weights_N).sum() / batch.weights_N.sum()
    loss.backward()
    got = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}
    return float(loss.detach()), got


@contextmanager
def traced() -> Iterator[None]:
    """Compiled layers are traced and run as graphs; generating C++ from them takes minutes."""
    patch = pytest.MonkeyPatch()
    patch.setattr(forward, "compiled", partial(torch.compile, dynamic=False, backend="aot_eager"))
    try:
        yield
    finally:
        patch.undo()


@pytest.mark.parametrize(
    ("dtype", "tolerance", "recompute", "compiled"),
    [
        (torch.float64, 1e-6, "none", False),
        (torch.float64, 1e-6, "full", False),
        (torch.float32, 1e-4, "selective", False),
        (torch.float32, 1e-4, "half", False),
        (torch.float32, 1e-4, "full", True),
    ],
)
def test_losses_and_gradients(
    case: Case, dtype: torch.dtype, tolerance: float, recompute: Recompute, compiled: bool, tmp_path: Path
) -> None:
    if compiled and case.kind == "experts":
        pytest.skip("experts wait for the host to count their tokens: around that, they are Qwen3-VL's layers")
    if recompute == "half" and case.kind != "tiles":
        pytest.skip("there are no Mamba layers")
    shapes = {picture.grids for each in case.sequences for picture in each.pictures}
    assert len(shapes) > 1, "images of several sizes or numbers of tiles"
    if dtype not in case.expected:
        case.expected[dtype] = their_gradients(case, dtype, tmp_path)
    expected_loss, expected = case.expected[dtype]
    model = our_model(case, dtype)
    with traced():
        forward.prepare_layers(model, recompute, compiled)
        loss, got = our_gradients(case, model)
    assert abs(loss - expected_loss) < tolerance
    for name, gradient in expected.items():
        if name.endswith("e_score_correction_bias"):
            continue
        assert gradient.any() or name.startswith("vision.video_embed"), name
        apart = float((gradient - got[name]).abs().max())
        assert apart <= tolerance * max(1.0, float(gradient.abs().max())), (name, apart)
