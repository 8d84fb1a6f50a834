"""Episodes of any length: whole in batches of 64k tokens, and cut by steps where they are longer than a batch takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from holotron.agent.policy_format import find_format
from holotron.model.config import MambaConfig, MlpConfig
from holotron.model.initialize import random_model
from holotron.train import forward
from holotron.train.batches import BatchBudget, Packer
from holotron.train.cutting import cut
from holotron.train.loader import SourceShare
from holotron.train.recipe import DataSource
from holotron.train.sequences import SequenceWriter

from .samples import CONFIG, policy_writer, sample, write_store
from .test_any_model import kept_for_gradients
from .test_forward import gradients, packed

assert CONFIG.vision is not None
LARGE = replace(CONFIG, vision=replace(CONFIG.vision, max_patches=1024))  # a screenshot takes more than its texts
WRITER = SequenceWriter(policy_writer(LARGE))
LONG = 65_536


@pytest.mark.parametrize("name", ["nano", "json", "holotron"])
def test_a_long_episode_is_cut_by_steps(name: str) -> None:
    example, policy_format = sample(5, steps=12, size=(512, 512)), find_format(name)
    whole = WRITER.write(example)
    longest = len(whole.token_ids) // 2
    pieces = cut(example, policy_format, WRITER, lambda each: len(each.token_ids) <= longest)
    assert len(pieces) > 2, "the texts of earlier steps take their room, too"
    assert all(longest // 2 < len(piece.token_ids) <= longest for piece in pieces[:-1])
    # Every step is learned once, and seen with its screenshot once.
    assert np.array_equal(np.concatenate([p.token_ids[p.learn] for p in pieces]), whole.token_ids[whole.learn])
    assert [shown for piece in pieces for shown in piece.pictures] == list(whole.pictures)
    start = len(pieces[0].token_ids)
    assert np.array_equal(pieces[0].token_ids, whole.token_ids[:start])
    assert np.array_equal(pieces[0].learn, whole.learn[:start])
    told = policy_writer(LARGE).tokenizer.decode(pieces[-1].token_ids.tolist())
    assert example.turns[0].said in told
    assert all(turn.answer in told for turn in example.turns)
    dropped = "[Image omitted by context cleaning]" if name == "holotron" else "(an older screenshot, no longer shown)"
    assert told.count(dropped) == len(whole.pictures) - len(pieces[-1].pictures)


def test_of_a_long_episode_a_piece_is_drawn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_store(tmp_path / "store", 8)

    def share(longest: int) -> SourceShare:
        def fits(each: object) -> bool:
            return len(each.token_ids) <= longest  # type: ignore[attr-defined]

        return SourceShare(DataSource(store="store"), WRITER, 0, 1, seed=0, folder=tmp_path, fits=fits)

    whole = [share(1000).draw(position)[0] for position in range(8)]
    lengths = [len(sequence.token_ids) for sequence in whole]
    longest = max(lengths) - 1
    some, again = ([drawn.draw(position) for position in range(8)] for drawn in (share(longest), share(longest)))
    for (one,), (other,), sequence in zip(some, again, whole, strict=True):
        assert len(one.token_ids) <= longest
        assert np.array_equal(one.token_ids, other.token_ids), "a run that goes on draws the same"
        assert np.array_equal(one.token_ids, sequence.token_ids) == (len(sequence.token_ids) <= longest)
    assert share(10).draw(0) == ()
    assert "is left out: its" in caplog.text
    assert "and not one fits" in caplog.text


def test_batches_of_64k_tokens() -> None:
    """One sequence with a screenshot at each of a hundred steps; recomputed layers keep what enters them."""
    config = replace(
        CONFIG,
        pattern="M-",
        hidden_size=16,
        mamba=MambaConfig(heads=1, head_dim=16, state_size=8, groups=1, chunk_size=128),
        mlp=MlpConfig(32),
        attention=None,
    )
    budget = BatchBudget(tokens=LONG, patches=2048, learned=4096, sequences=4, images=128, longest=LONG)
    example = sample(5, steps=100, size=(64, 64))
    turns = tuple(replace(turn, said=f"{turn.said} {'word ' * 125}") for turn in example.turns)
    sequence = SequenceWriter(policy_writer(config)).write(replace(example, turns=turns))
    packer = Packer(config, budget)
    assert packer.fits(sequence)
    batch = packer.build([sequence])
    assert batch.used_tokens > 0.9 * LONG
    assert len(batch.pictures) > 60
    model = random_model(config, seed=3).train()
    forward.prepare_layers(model, "full")
    kept = kept_for_gradients(model, batch)
    stream = LONG * config.hidden_size * 4
    assert kept < 2 * (config.layers + 2) * stream, "two tensors of the stream's size for each layer"
    learned = int(batch.weights_N.sum())
    found = gradients(model, packed(model, batch)[:learned], batch.targets_N[:learned])
    assert all(torch.isfinite(gradient).all() for gradient in found.values())
    assert found["vision.patch_embed.weight"].any()
