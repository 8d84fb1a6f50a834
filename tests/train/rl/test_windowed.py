"""Formats whose prompts are written anew are learned step by step: each prompt as it was, with its own pictures."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from holotron.agent.in_process import loaded
from holotron.agent.policy_format import find_format
from holotron.episodes.store import EpisodeStore
from holotron.train.batches import Packer
from holotron.train.rl.config import ObjectiveConfig, read_grpo_recipe
from holotron.train.rl.policy_learner import PolicyLearner
from holotron.train.rl.rollout import Rollout
from holotron.train.rl.rollout_batch import pack, weigh
from tests.train.test_tokens_learned import KINDS, short_words

from .samples import TINY, write_run
from .test_exact_tokens import GROUP, play, reader_of

__all__ = ["short_words"]


def test_each_step_is_a_sequence_of_its_own(tmp_path: Path) -> None:
    name = "holo2"
    path = write_run(tmp_path, steps=2, rollout=f'format = "{name}"')
    path.write_text(
        path.read_text().replace("longest = 128", "longest = 2048").replace("tokens = 768", "tokens = 4096")
    )
    recipe, store = read_grpo_recipe(path), EpisodeStore(tmp_path / "episodes", sync="never")
    asked = find_format(name).with_kinds(KINDS)
    assert Rollout(recipe, tmp_path / "other").policy_format.windowed
    learner = PolicyLearner(recipe, torch.device("cpu"))
    style = asked.options(24, 1.0)
    with loaded(
        tmp_path / "start", "cpu", style=style, memory=2**27, tokens_per_session=2048, group=GROUP, bf16_products=False
    ) as model:
        ids = asyncio.run(play(model, asked, store))
        episodes = reader_of(learner, model, store, asked).read(*ids)
    for episode, parts in zip(ids, episodes, strict=True):
        steps = list(store.steps(episode))
        assert len(parts) == len(steps) > 1
        for part, step in zip(parts, steps, strict=True):
            assert step.output is not None
            assert step.output.prompt_ids is not None
            assert step.output.token_ids is not None
            assert part.sequence.token_ids.tolist() == [*step.output.prompt_ids, *step.output.token_ids]
            assert part.states == (step.observation.image,)
            assert len(part.sequence.pictures) >= 1
    by_length = ObjectiveConfig(by_length=True)
    weighed = [each for parts in episodes for each in weigh(parts, [0.1 * k for k in range(len(parts))], False, 0)]
    assert [each.advantages for each in weighed[: len(episodes[0])]] == [(0.1 * k,) for k in range(len(episodes[0]))]
    batches = pack(Packer(TINY, recipe.batch), weighed, by_length)
    # Each episode counts as one, however many sequences it is.
    assert sum(float(batch.drawn.weight_N.sum()) for batch in batches) == pytest.approx(1.0, abs=1e-6)
    for batch in batches:
        logprobs, _ = learner.logprobs(batch)
        is_token = batch.drawn.weight_N > 0
        torch.testing.assert_close(logprobs[is_token], batch.drawn.engine_N[is_token], rtol=0, atol=2e-5)
