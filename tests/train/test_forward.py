"""The compiled form of the model against the plain one: outputs and gradients, packed and padded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from holotron.model.image import load_image
from holotron.model.initialize import random_model
from holotron.model.model import Model
from holotron.model.text.policy_tokenizer import policy_tokenizer
from holotron.model.tiling import ImageProcessor
from holotron.train.batches import Batch, Budget, Packer
from holotron.train.forward import logits_of_learned, place_patches, prepare_patches
from holotron.train.sequences import Sequence, SequenceWriter

from .samples import CONFIG, policy_writer, sample

BUDGET = Budget(tokens=1024, patches=768, learned=128, sequences=12, images=24)


def sequences(seeds: range) -> list[Sequence]:
    writer = SequenceWriter(policy_writer(CONFIG))
    return [writer.write(sample(seed)) for seed in seeds]


def fast(model: Model, batch: Batch) -> torch.Tensor:
    assert model.vision is not None
    assert CONFIG.vision is not None
    patches = prepare_patches(batch, CONFIG.vision, BUDGET.patches, torch.device("cpu"), torch.float64)
    return logits_of_learned(model, batch, patches, place_patches(batch, model.vision, BUDGET.patches))


def plain(model: Model, sequence: Sequence) -> torch.Tensor:
    """Logits behind each row that a learned token follows, by the model's own way."""
    assert CONFIG.vision is not None
    processor = ImageProcessor(CONFIG.vision)
    images = model.encode_images([processor(load_image(picture.png)) for picture in sequence.pictures])
    [logits] = model.score([sequence.token_ids.tolist()], images)
    return logits[torch.from_numpy(np.flatnonzero(sequence.learn) - 1)]


def over_one_picture(seeds: range) -> list[Sequence]:
    """Different conversations about the same screenshot."""
    writer = SequenceWriter(policy_writer(CONFIG))
    made = [writer.write(sample(seed, steps=1, size=(64, 64))) for seed in seeds]
    return [replace(each, pictures=made[0].pictures) for each in made]


@pytest.mark.parametrize("shared", [1, 2, 5])
def test_outputs_and_gradients_equal_the_plain_model(shared: int) -> None:
    made = [*sequences(range(3)), *over_one_picture(range(20, 24)), *sequences(range(3, 6))]
    model = random_model(CONFIG, dtype=torch.float64, seed=3).double().train()
    batch = Packer(CONFIG, replace(BUDGET, shared=shared)).build(made)
    looked_at = sum(len(pixels) for pixels in batch.pixels)
    assert looked_at == sum(len(each.pictures) for each in made) - 4 + {1: 4, 2: 2, 5: 1}[shared]
    learned = [int(sequence.learn.sum()) for sequence in made]

    got = fast(model, batch)[: sum(learned)]
    expected = torch.cat([plain(model, sequence) for sequence in made])
    assert (got - expected).abs().max() < 1e-9

    targets = batch.targets_N[: sum(learned)]
    gradients = []
    for logits in (got, expected):
        model.zero_grad(set_to_none=True)
        F.cross_entropy(logits, targets).backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in gradients[1].items():
        assert gradient is not None, name
        other = gradients[0][name]
        assert other is not None, name
        assert (gradient - other).abs().max() <= 1e-9 * max(1.0, float(gradient.abs().max())), name


def test_a_sequence_sees_nothing_of_its_neighbours() -> None:
    made = sequences(range(6))
    model = random_model(CONFIG, dtype=torch.float64).double()
    packer = Packer(CONFIG, BUDGET)
    alone = fast(model, packer.build([made[3]]))[: int(made[3].learn.sum())]
    before = sum(int(sequence.learn.sum()) for sequence in made[:3])
    among = fast(model, packer.build(made))[before : before + len(alone)]
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
    grids = [picture.grid for member in members for picture in member.pictures]
    assert batch.used_patches == sum(rows * columns for rows, columns in grids) <= BUDGET.patches
    assert batch.token_ids_T.shape == (BUDGET.tokens,)
    assert int(batch.weights_N.sum()) == sum(int(member.learn.sum()) for member in members)


def test_what_can_never_fit_is_known() -> None:
    small = Packer(CONFIG, Budget(tokens=64, patches=32, learned=64, sequences=4, images=4))
    fitting = [sequence for sequence in sequences(range(10)) if small.fits(sequence)]
    assert 0 < len(fitting) < 10
