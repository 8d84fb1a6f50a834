"""Our logits are transformers' logits, from the same checkpoint, over drawn configurations."""

import copy

import pytest
import torch

from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.model import Model

from . import oracle

LENGTHS = (1, 7, 33, 18)
SEEDS = range(8)


def token_ids(seed: int, vocab: int = 90) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1000 + seed)
    return [torch.randint(0, vocab, (length,), generator=generator).tolist() for length in LENGTHS]


def theirs_alone(model: torch.nn.Module, sequence: list[int]) -> torch.Tensor:
    """transformers' logits of one sequence by itself, so that no padding is involved."""
    return model(torch.tensor([sequence]), use_cache=False).logits[0]


def worst_difference(ours: Model, theirs: torch.nn.Module, seed: int) -> float:
    sequences = token_ids(seed)
    with torch.no_grad():
        packed = ours.score(sequences)
        alone = [theirs_alone(theirs, sequence) for sequence in sequences]
    assert max(t.abs().max() for t in alone) > 0.5, "the oracle's logits are too small to tell anything"
    return max(oracle.difference(a, b) for a, b in zip(packed, alone, strict=True))


def double(theirs: torch.nn.Module) -> torch.nn.Module:
    theirs = copy.deepcopy(theirs).double()
    for module in theirs.modules():
        if hasattr(module, "config"):
            module.config._experts_implementation = "eager"  # its grouped matrix product knows no float64
    return theirs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["dense", "moe", "latent"])
def test_nemotron(kind: str, seed: int, tmp_path):
    theirs = oracle.make_nemotron(seed, kind)
    folder = oracle.save(theirs, tmp_path / "model")
    assert worst_difference(load_checkpoint(folder), theirs, seed) < 1e-4
    ours = load_checkpoint(folder, dtype=torch.float64)
    with oracle.in_float64():
        exact = double(theirs)
        assert worst_difference(ours, exact, seed) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_qwen3(seed: int, tmp_path):
    theirs = oracle.make_qwen3(seed)
    folder = oracle.save(theirs, tmp_path / "model")
    assert worst_difference(load_checkpoint(folder), theirs, seed) < 1e-4
    ours = load_checkpoint(folder, dtype=torch.float64)
    with oracle.in_float64():
        exact = type(theirs)(theirs.config).eval().double()  # anew, so that its rotary table is in float64 too
        exact.load_state_dict(theirs.state_dict())
        assert worst_difference(ours, exact, seed) < 1e-9


GRIDS = [(2, 2), (4, 6), (2, 10), (4, 6), (8, 8)]


def random_patches(seed: int, grids: list[tuple[int, int]]) -> torch.Tensor:
    count = sum(rows * columns for rows, columns in grids)
    return torch.rand(count, 768, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_radio(seed: int):
    theirs = oracle.make_radio(seed)
    config = theirs.config
    from holotron.model.checkpoint.names import Dialect
    from holotron.model.config import ModelConfig, VisionConfig
    from holotron.model.vision import VisionTower

    vision = VisionConfig(
        width=config.hidden_size,
        depth=config.num_hidden_layers,
        heads=config.num_attention_heads,
        mlp_size=int(config.hidden_size * config.mlp_ratio),
        max_image_size=config.max_img_size,
        prefix_tokens=config.num_summary_tokens,
    )
    ours = VisionTower(vision).eval()
    weights = {"vision_model." + name: tensor for name, tensor in theirs.state_dict().items()}
    model_config = ModelConfig(name="tower", pattern="-", hidden_size=8, vocab_size=8, mlp=oracle_mlp(), vision=vision)
    spelling = Dialect(prefix="language_model.", released=False)
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parts = [weights[stored.name] for stored in spelling.stored(f"vision.{name}", model_config)]
            parameter.copy_(torch.cat(parts))
        pixels = random_patches(seed, GRIDS)
        mean, std = torch.tensor(vision.mean).view(3, 1), torch.tensor(vision.std).view(3, 1)
        normalised = ((pixels.view(-1, 3, 256) - mean) / std).view(-1, 768)
        reference = theirs(pixels, image_grid_hw=torch.tensor(GRIDS)).features
        assert oracle.difference(torch.cat(ours(normalised, GRIDS)), reference) < 1e-4
        with oracle.in_float64():
            exact = double(theirs)
            normalised = ((pixels.double().view(-1, 3, 256) - mean.double()) / std.double()).view(-1, 768)
            reference = exact(pixels.double(), image_grid_hw=torch.tensor(GRIDS)).features
            assert oracle.difference(torch.cat(ours.double()(normalised, GRIDS)), reference) < 1e-9


def oracle_mlp():
    from holotron.model.config import MlpConfig

    return MlpConfig(8)


def vlm_inputs(seed: int) -> tuple[list[int], torch.Tensor, list[tuple[int, int]]]:
    """Text, an image, text, two more images of other sizes, text."""
    grids = [(4, 6), (2, 2), (6, 4)]
    text = token_ids(seed)
    ids = [*text[1], *[oracle.IMAGE_TOKEN] * 6, *text[3], *[oracle.IMAGE_TOKEN] * 7, *text[0]]
    return ids, random_patches(seed, grids) * 2 - 1, grids


@pytest.mark.parametrize(
    ("seed", "kind", "lookahead"),
    [(0, "dense", 0), (1, "moe", 0), (2, "latent", 0), (3, "dense", 1), (4, "dense", 0), (5, "moe", 1)],
)
def test_vision_language(seed: int, kind: str, lookahead: int, tmp_path):
    theirs = oracle.make_omni(seed, kind, lookahead)
    folder = oracle.save(theirs, tmp_path / "model")
    ids, patches, grids = vlm_inputs(seed)

    def both(ours: Model, reference: torch.nn.Module, patches: torch.Tensor) -> float:
        with torch.no_grad():
            (logits,) = ours.score([ids], ours.encode_patches(patches, grids))
            expected = reference(torch.tensor([ids]), pixel_values=patches, image_grid_hw=torch.tensor(grids)).logits[0]
        return oracle.difference(logits, expected)

    assert both(load_checkpoint(folder), theirs, patches) < 1e-4
    ours = load_checkpoint(folder, dtype=torch.float64)
    with oracle.in_float64():
        exact = double(theirs)
        exact.vision_model.config.torch_dtype = torch.float64
        assert both(ours, exact, patches.double()) < 1e-9
