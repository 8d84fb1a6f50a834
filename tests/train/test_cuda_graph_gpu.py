"""The recorded step beside the one that is computed kernel by kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from holotron.train.batches import BatchBudget
from holotron.train.recipe import DataSource, Recipe
from holotron.train.sft import Trainer

from .samples import write_start

BUDGET = BatchBudget(tokens=1024, patches=1024, learned=256, sequences=16, images=32, longest=512)


@pytest.mark.gpu
def test_a_recorded_step_has_the_gradients_of_the_computed_one(tmp_path: Path) -> None:
    write_start(tmp_path)
    recipe = Recipe(
        name="recorded",
        stage="localization",
        start=str(tmp_path / "start"),
        steps=4,
        data=(DataSource(shards=str(tmp_path / "data")),),
        compile=True,
        ocr_loss=0.5,
        workers=0,
        batch=BUDGET,
    )
    trainer = Trainer(recipe, tmp_path / "run", "cuda")
    assert trainer.learner.cuda_graph is not None
    stream = trainer.batches()
    batches = [next(stream)[0].batch for _ in range(3)]
    recorded = []
    for batch in batches:
        loss, _, _ = trainer.learner.cuda_graph(batch, *trainer.learner.see(batch))
        recorded.append((loss, {name: p.grad.clone() for name, p in trainer.learner.model.named_parameters()}))
    for batch, (loss, gradients) in zip(batches, recorded, strict=True):
        trainer.learner.model.zero_grad(set_to_none=True)
        computed, _, _ = trainer.learner.objective(batch.to(trainer.learner.device))
        computed.backward()
        torch.testing.assert_close(loss, computed.detach(), rtol=1e-3, atol=1e-4)
        for name, p in trainer.learner.model.named_parameters():
            assert (p.grad - gradients[name]).norm() <= 0.02 * gradients[name].norm() + 1e-6, name
