"""Training batches through the model's own layers against plain scoring: outputs and gradients, packed and padded."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounter

from holotron.model.config import AttentionConfig, MlpConfig, ModelConfig, MoeConfig
from holotron.model.image import load_image
from holotron.model.initialize import random_model
from holotron.model.model import Model
from holotron.model.text.policy_tokenizer import policy_tokenizer
from holotron.model.tiling import ImageProcessor
from holotron.ops import fixed
from holotron.train import forward
from holotron.train.batches import BatchBudget, Packer, TrainingBatch
from holotron.train.forward import encode_images, hidden_of_learned, place_patches, prepare_patches
from holotron.train.sequences import Sequence, SequenceWriter

from .samples import CONFIG, policy_writer, qwen_config, sample

BUDGET = BatchBudget(tokens=1024, patches=768, learned=128, sequences=12, images=24)
ROTARY = {
    "pattern": "*-*-",
    "mamba": None,
    "attention": AttentionConfig(heads=4, kv_heads=2, head_dim=16, rope_theta=10_000.0, qk_norm=True),
    "mlp": MlpConfig(96, gated=True),
}
CONFIGS: dict[str, ModelConfig] = {
    "hybrid": CONFIG,
    "rotary hybrid": replace(CONFIG, attention=ROTARY["attention"]),
    "experts": replace(CONFIG, pattern="ME*E", mlp=None, moe=MoeConfig(4, 2, 32, 32, latent_size=48)),
    "rotary": replace(CONFIG, **ROTARY),  # type: ignore[arg-type]
    "rotary without vision": replace(CONFIG, **ROTARY, vision=None),  # type: ignore[arg-type]
    "hybrid without vision": replace(CONFIG, vision=None),
}


def sequences(seeds: range, config: ModelConfig = CONFIG) -> list[Sequence]:
    writer = SequenceWriter(policy_writer(config))
    return [writer.write(sample(seed)) for seed in seeds]


def without_pictures(sequence: Sequence) -> Sequence:
    assert CONFIG.vision is not None
    said = sequence.token_ids != CONFIG.vision.image_token_id
    return Sequence(sequence.token_ids[said], sequence.learn[said], ())


def packed(model: Model, batch: TrainingBatch) -> torch.Tensor:
    """Logits behind each row that a learned token follows, as training computes them."""
    if model.vision is None:
        return model.decoder.logits(hidden_of_learned(model, batch, None))
    room = 4 * len(batch.image_token_MR)
    patches = prepare_patches(batch, model.vision.config, room, model.device, model.dtype)
    images = encode_images(model, batch, patches, place_patches(batch, model.vision, room))
    return model.decoder.logits(hidden_of_learned(model, batch, images))


def scored(model: Model, sequence: Sequence) -> torch.Tensor:
    """The same of one sequence alone, by `Model.score`."""
    images = []
    if model.config.vision is not None:
        processor = ImageProcessor(model.config.vision)
        images = model.encode_images([processor(load_image(picture.png)) for picture in sequence.pictures])
    grids = [grid for picture in sequence.pictures for grid in picture.grids]
    [logits] = model.score([sequence.token_ids.tolist()], images, grids)
    return logits[torch.from_numpy(np.flatnonzero(sequence.learn) - 1)]


def over_one_picture(seeds: range) -> list[Sequence]:
    """Different conversations about the same screenshot."""
    writer = SequenceWriter(policy_writer(CONFIG))
    made = [writer.write(sample(seed, steps=1, size=(64, 64))) for seed in seeds]
    return [replace(each, pictures=made[0].pictures) for each in made]


def gradients(model: Model, logits: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    F.cross_entropy(logits, targets).backward()
    # A table that no token of the batch is looked up in may have no gradient at all.
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}


def assert_equal_to_scoring(model: Model, made: list[Sequence], batch: TrainingBatch, tolerance: float) -> None:
    learned = sum(int(sequence.learn.sum()) for sequence in made)
    got = packed(model, batch)[:learned]
    expected = torch.cat([scored(model, sequence) for sequence in made])
    assert (got - expected).abs().max() < tolerance
    targets = batch.targets_N[:learned]
    ours, theirs = (gradients(model, logits, targets) for logits in (got, expected))
    for name, gradient in theirs.items():
        assert gradient.any() or name.endswith("e_score_correction_bias"), name
        assert (gradient - ours[name]).abs().max() <= tolerance * max(1.0, float(gradient.abs().max())), name


@pytest.mark.parametrize("shared", [1, 2, 5])
def test_outputs_and_gradients_equal_plain_scoring(shared: int) -> None:
    made = [*sequences(range(3)), *over_one_picture(range(20, 24)), *sequences(range(3, 6))]
    model = random_model(CONFIG, dtype=torch.float64, seed=3).double().train()
    batch = Packer(CONFIG, replace(BUDGET, shared=shared)).build(made)
    looked_at = sum(len(pixels) for pixels in batch.pixels)
    assert looked_at == sum(len(each.pictures) for each in made) - 4 + {1: 4, 2: 2, 5: 1}[shared]
    assert_equal_to_scoring(model, made, batch, 1e-9)


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_kind_of_model_is_trained_as_it_is_scored(kind: str) -> None:
    config = CONFIGS[kind]
    made = sequences(range(5)) if config.vision else [without_pictures(each) for each in sequences(range(5))]
    batch = Packer(config, BUDGET).build(made)
    # Weights of the usual size would hide positions: attention over them is nearly even.
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
        model = random_model(config, dtype=dtype, seed=3).to(dtype).train()
        with torch.no_grad():
            for parameter in model.decoder.layers.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(4)
        assert_equal_to_scoring(model, made, batch, tolerance)


def test_positions_of_a_rotary_model_start_anew_with_each_sequence() -> None:
    """Moved behind others in the batch, a sequence computes the same; without its positions it would not."""
    config = CONFIGS["rotary"]
    made = sequences(range(4))
    model = random_model(config, dtype=torch.float64).double()
    with torch.no_grad():
        for parameter in model.decoder.layers.parameters():
            parameter.mul_(4)
    batch = Packer(config, BUDGET).build(made)
    last = slice(sum(int(each.learn.sum()) for each in made[:3]), sum(int(each.learn.sum()) for each in made))
    expected, got = scored(model, made[3]), packed(model, batch)[last]
    assert (got - expected).abs().max() < 1e-9
    still = replace(batch, text=replace(batch.text, positions_T=torch.zeros_like(batch.text.positions_T)))
    assert (packed(model, still)[last] - expected).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        (
            replace(CONFIG, pattern="MM*-M*-", attention=ROTARY["attention"]),  # type: ignore[arg-type]
            ["tower block", "first layer", "M", "*", "-"],
        ),
        (qwen_config("3"), ["tower block", "first layer", "*", "-"]),
        (qwen_config("2.5"), ["tower block within windows", "tower block", "first layer", "*", "-"]),
    ],
    ids=["hybrid", "qwen3", "qwen2.5"],
)
def test_each_kind_of_layer_is_compiled_once_and_whole(
    config: ModelConfig, kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More layers and other batches are the same programs. On a CPU two ops loop over tables, and stand aside here."""
    monkeypatch.setattr(fixed, "plain_carry", lambda kept_CH, added_CHPN, *_: added_CHPN)
    monkeypatch.setattr(fixed, "attention", lambda q, k, v, packing, causal: q * (packing.bounds_S[1] > 0))
    counter = CompileCounter()
    compile_whole = partial(torch.compile, dynamic=False, fullgraph=True, backend=counter)
    monkeypatch.setattr(forward, "compiled", compile_whole)
    torch._dynamo.reset()
    model = random_model(config).train()
    forward.prepare_layers(model, compile_them=True)
    for seeds in (range(2), range(2, 5)):
        packed(model, Packer(config, BUDGET).build(sequences(seeds, config)))
    assert counter.frame_count == len(kinds)


def test_patches_are_those_of_the_image_processor() -> None:
    assert CONFIG.vision is not None
    made = sequences(range(6))
    batch = Packer(CONFIG, BUDGET).build(made)
    patches = prepare_patches(batch, CONFIG.vision, BUDGET.patches, torch.device("cpu"), torch.float32)
    processor = ImageProcessor(CONFIG.vision)
    pictures = [picture for each in made for picture in each.pictures]
    sizes = list(dict.fromkeys(picture.size for picture in pictures))
    assert len(sizes) > 1
    in_order = sorted(pictures, key=lambda picture: sizes.index(picture.size))
    expected = torch.cat([processor(load_image(picture.png)).patches for picture in in_order])
    assert torch.equal(patches[: len(expected)], expected)
    assert not patches[len(expected) :].any()


def test_a_sequence_sees_nothing_of_its_neighbours() -> None:
    made = sequences(range(6))
    model = random_model(CONFIG, dtype=torch.float64).double()
    packer = Packer(CONFIG, BUDGET)
    alone = packed(model, packer.build([made[3]]))[: int(made[3].learn.sum())]
    before = sum(int(sequence.learn.sum()) for sequence in made[:3])
    among = packed(model, packer.build(made))[before : before + len(alone)]
    assert (alone - among).abs().max() < 1e-10


def test_sequences_are_what_the_chat_template_writes() -> None:
    """Token for token, for the whole conversation at once."""
    for seed in range(12):
        made = sample(seed)
        messages, sizes = [], []
        for turn in made.turns:
            parts = [{"type": "text", "text": turn.said}]
            if turn.image is not None:
                parts.insert(0, {"type": "image"})
                sizes.append(load_image(turn.image).size)
            messages += [{"role": "user", "content": parts}, {"role": "assistant", "content": turn.answer}]
        written = policy_writer(CONFIG).write(messages, sizes, add_generation_prompt=False)
        [sequence] = sequences(range(seed, seed + 1))
        assert list(written.token_ids) == sequence.token_ids.tolist()


def test_only_answers_are_learned() -> None:
    tokenizer = policy_tokenizer(CONFIG)
    writer = SequenceWriter(policy_writer(CONFIG))
    for seed in range(20):
        made = sample(seed)
        sequence = writer.write(made)
        expected = "".join(turn.answer for turn in made.turns if turn.learn)
        assert tokenizer.decode(sequence.token_ids[sequence.learn].tolist()) == expected


def test_a_batch_keeps_to_the_budget() -> None:
    packer, room = Packer(CONFIG, BUDGET), Packer(CONFIG, BUDGET).room()
    made = sequences(range(40))
    members = []
    for sequence in made:
        if room.takes((sequence,)):
            room.take((sequence,))
            members.append(sequence)
    assert 1 < len(members) < len(made)
    batch = packer.build(members)
    assert batch.used_tokens == sum(len(member.token_ids) for member in members) <= BUDGET.tokens
    grids = [grid for member in members for picture in member.pictures for grid in picture.grids]
    assert batch.used_patches == sum(rows * columns for rows, columns in grids) <= BUDGET.patches
    assert batch.token_ids_T.shape == (BUDGET.tokens,)
    assert int(batch.weights_N.sum()) == sum(int(member.learn.sum()) for member in members)


def test_what_can_never_fit_is_known() -> None:
    small = Packer(CONFIG, BatchBudget(tokens=64, patches=32, learned=64, sequences=4, images=4))
    fitting = [sequence for sequence in sequences(range(10)) if small.fits(sequence)]
    assert 0 < len(fitting) < 10


def test_a_budget_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="learned is 65 and tokens is 64"):
        BatchBudget(tokens=64, learned=65)
    with pytest.raises(ValueError, match="patches is 30; it must be a multiple of 4"):
        BatchBudget(patches=30)
    with pytest.raises(ValueError, match="sequences is 0"):
        BatchBudget(sequences=0)
