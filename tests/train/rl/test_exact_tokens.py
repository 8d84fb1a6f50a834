"""What is learned from is what the engine saw and drew, and what the engine plays with is what was learned."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from holotron.agent.agent import Agent, Budget, StepRecord
from holotron.agent.chat import ChatOptions
from holotron.agent.in_process import EngineModel, loaded
from holotron.agent.policy_format import NANO, PolicyFormat
from holotron.engine.errors import EngineError
from holotron.env.task import Task
from holotron.episodes.examples import ExampleError
from holotron.episodes.record import EnvironmentInfo, Outcome, PolicyInfo
from holotron.episodes.recording import step_of
from holotron.episodes.store import EpisodeStore
from holotron.model.adapters import held_changes
from holotron.model.loading import load
from holotron.model.text.byte_tokenizer import byte_library
from holotron.model.text.chat_template import DEFAULT_TEMPLATE
from holotron.train.batches import Packer
from holotron.train.rl.config import GrpoRecipe, read_grpo_recipe
from holotron.train.rl.engine_here import EngineHere
from holotron.train.rl.groups import RolloutGroup, Trajectory
from holotron.train.rl.played import PlayedReader
from holotron.train.rl.policy_learner import PolicyLearner
from holotron.train.rl.reading import GroupReader
from holotron.train.rl.rollout import Rollout
from holotron.train.rl.rollout_batch import WeighedSequence, pack
from holotron.train.rl.token_masks import TokenMasks
from holotron.train.rl.weight_sync import POLICY, changes_of, send_weights
from tests.train.test_tokens_learned import KINDS, TASK, Pages

from .samples import TINY, write_run

ASKED = NANO.with_kinds(KINDS)
GROUP = 3
STYLE = ChatOptions(max_tokens=40, temperature=0.7, keep_images=None)


async def play(model: EngineModel, policy_format: PolicyFormat, store: EpisodeStore) -> list[str]:
    """Episodes of a group that see the same pages, of three steps each, at once."""

    async def one(sample: int) -> str:
        agent = Agent(model, Pages(), policy_format=policy_format, budget=Budget(steps=3), seed=sample)  # type: ignore[arg-type]
        await agent.run(TASK)
        return record(store, sample, agent.steps)

    return list(await asyncio.gather(*(one(sample) for sample in range(GROUP))))


def record(store: EpisodeStore, sample: int, steps: list[StepRecord]) -> str:
    task = Task(text=TASK, name="pages", sample=sample)
    with store.begin(task, PolicyInfo(model="tiny"), EnvironmentInfo(name="drawn")) as writer:
        for step in steps:
            writer.add_step(step_of(step), step.observation.image)
        writer.finish(Outcome(reason="step_limit", success=False, reward=0.0))
    return writer.info.id


def reader_of(
    learner: PolicyLearner, model: EngineModel, store: EpisodeStore, asked: PolicyFormat = ASKED
) -> PlayedReader:
    config = learner.model.config
    masks = TokenMasks(learner.writer.tokenizer, config, model.engine.loop.sampler.banned.tolist())
    return PlayedReader(store, config, asked, masks)


def recipe_of(folder: Path, objective: str = "") -> GrpoRecipe:
    path = write_run(folder, steps=2)
    text = path.read_text().replace("max_tokens = 32", "max_tokens = 40\ntemperature = 0.7")
    path.write_text(
        text.replace("tokens = 8.0", f"tokens = 8.0\n{objective}").replace("longest = 128", "longest = 384")
    )
    return read_grpo_recipe(path)


@pytest.mark.parametrize("tokenizer", ["policy", "bytes"])
def test_engine_and_trainer_agree_on_every_drawn_token(tmp_path: Path, tokenizer: str) -> None:
    recipe, store = recipe_of(tmp_path, "kl = 0.1"), EpisodeStore(tmp_path / "episodes", sync="never")
    if tokenizer == "bytes":  # in which a grammar forces most of an answer
        byte_library(TINY).save(str(tmp_path / "start" / "tokenizer.json"))
        (tmp_path / "start" / "chat_template.jinja").write_text(DEFAULT_TEMPLATE.read_text())
    learner = PolicyLearner(recipe, torch.device("cpu"))
    with loaded(
        tmp_path / "start", "cpu", style=STYLE, memory=2**27, tokens_per_session=512, group=GROUP, bf16_products=False
    ) as model:
        ids = asyncio.run(play(model, ASKED, store))
        forks = model.engine.counters()["forks"]
        played = [each for [each] in reader_of(learner, model, store).read(*ids)]
        # One prompt is computed for all: what differs follows after the first answers.
        assert forks == GROUP - 1
        assert played[0].states == played[1].states
        outputs = [step.output for episode in ids for step in store.steps(episode)]
        drawn = [not forced for output in outputs if output is not None for forced in output.forced or ()]
        assert sum(len(each.engine) for each in played) == sum(drawn)
        assert (sum(drawn) < len(drawn)) == (tokenizer == "bytes")
        batches = pack(Packer(TINY, recipe.batch), [WeighedSequence(p, (1.0,) * 3) for p in played], recipe.objective)
        for batch in batches:
            logprobs, _ = learner.logprobs(batch)
            is_token = batch.drawn.weight_N > 0
            torch.testing.assert_close(logprobs[is_token], batch.drawn.engine_N[is_token], rtol=0, atol=2e-5)
            with torch.no_grad():  # what was not allowed there is no answer
                rolled, _ = learner.logprobs(
                    batch.__class__(batch.batch, batch.drawn, ~batch.allowed_NW, batch.version_N)
                )
            assert rolled[is_token].max() == float("-inf")


def test_an_update_reaches_every_parameter_of_the_engine_bit_for_bit(tmp_path: Path) -> None:
    recipe, store = recipe_of(tmp_path, "kl = 0.1"), EpisodeStore(tmp_path / "episodes", sync="never")
    learner = PolicyLearner(recipe, torch.device("cpu"))
    with loaded(
        tmp_path / "start", "cpu", style=STYLE, memory=2**27, tokens_per_session=512, group=GROUP, bf16_products=False
    ) as model:
        ids = asyncio.run(play(model, ASKED, store))
        reader = reader_of(learner, model, store)
        weighed = [WeighedSequence(played, (1.0, -0.5, 0.3)) for [played] in reader.read(*ids)]
        batches = list(learner.passes(pack(Packer(TINY, recipe.batch), weighed, recipe.objective))[0])
        for step in range(2):
            report = learner.update(batches, step, 0)
        means = report.sums.means()
        assert means["kl"] is not None
        assert means["kl"] > 0  # from where it began
        engine = model.engine
        before = {name: parameter.clone() for name, parameter in engine.model.named_parameters()}
        assert {"decoder.layers.0.mixer.D", "decoder.layers.0.mixer.conv1d.weight"} < before.keys()
        checksum = send_weights(learner, engine, 7)
        fresh = load(learner.export(tmp_path / "fresh", torch.float32), "cpu", torch.float32)
        for name, parameter in fresh.named_parameters():
            assert torch.equal(parameter, engine.model.get_parameter(name)), name
            assert not torch.equal(parameter, before[name]), name
        sequence = weighed[0].played.sequence
        text = [int(token) for token in sequence.token_ids if token != 5]
        assert torch.equal(fresh.score([text])[0], engine.model.score([text])[0])
        assert engine.loop.epoch == 7
        one = pack(Packer(TINY, recipe.batch), weighed[:1], recipe.objective)
        assert learner.difference(sequence, one[0], EngineHere(model).score(sequence)) < 2e-5
        assert engine.sessions() == []
        # With the weights it began with, the model says what it said.
        with learner.at_the_beginning():
            # The engine has others now.
            assert learner.difference(sequence, one[0], EngineHere(model).score(sequence)) > 1e-3
            assert send_weights(learner, engine, 8) != checksum
        assert all(torch.equal(parameter, before[name]) for name, parameter in engine.model.named_parameters())
        check_reading_elsewhere(reader, ids, weighed, recipe)


def test_attempts_that_saw_the_same_look_at_it_once_and_learn_the_same(tmp_path: Path) -> None:
    recipe, store = recipe_of(tmp_path), EpisodeStore(tmp_path / "episodes", sync="never")
    with loaded(
        tmp_path / "start", "cpu", style=STYLE, memory=2**27, tokens_per_session=512, group=GROUP, bf16_products=False
    ) as model:
        ids = asyncio.run(play(model, ASKED, store))
        learners = [PolicyLearner(recipe, torch.device("cpu")) for _ in range(2)]
        episodes = reader_of(learners[0], model, store).read(*ids)
    weighed = [WeighedSequence(played, (1.0, -0.5, 0.3)) for [played] in episodes]
    seen = [picture for each in weighed for picture in each.played.sequence.pictures]
    different = {picture.png for picture in seen}
    assert len({id(picture) for picture in seen}) == len(different) < len(seen)
    told = []
    for learner, shared in zip(learners, (1, len(seen)), strict=True):
        packer = Packer(TINY, replace(recipe.batch, shared=shared))
        [batch] = pack(packer, weighed, recipe.objective)
        patches = {1: seen, len(seen): [next(p for p in seen if p.png == png) for png in different]}[shared]
        assert batch.batch.used_patches == sum(picture.patches for picture in patches)
        report = learner.update([batch], 0, 0)
        told.append((report.loss.item(), report.gradient.item(), *report.sums.means().values()))
    assert told[0] == pytest.approx(told[1], rel=1e-5)
    # What fits is counted as it is packed: a batch without room for one picture more takes the rest.
    room = replace(
        recipe.batch, shared=len(seen), patches=sum(picture.patches for picture in patches), images=len(different)
    )
    assert len(pack(Packer(TINY, room), weighed, recipe.objective)) == 1
    assert len(pack(Packer(TINY, replace(room, shared=1)), weighed[:-1], recipe.objective)) > 1


def check_reading_elsewhere(
    reader: PlayedReader, ids: list[str], weighed: list[WeighedSequence], recipe: GrpoRecipe
) -> None:
    """Another process reads and packs the same; once it has died, this one does."""
    attempts = [Trajectory(episode, "pages", 0.0, False, 3) for episode in ids]
    group, packer = RolloutGroup(7, "pages", 1, tuple(attempts)), Packer(TINY, recipe.batch)
    expected = pack(packer, weighed, recipe.objective)
    with GroupReader(reader, packer, recipe.objective, 1) as groups:
        for _ in range(2):
            groups.begin(group)
            again = [replace(each, played=played) for each, [played] in zip(weighed, groups.read(group), strict=True)]
            for batch, wanted in zip(groups.pack(again, len(again)), expected, strict=True):
                assert all(map(torch.equal, batch.batch.tables(), wanted.batch.tables()))
                assert torch.equal(batch.allowed_NW, wanted.allowed_NW)
                assert torch.equal(batch.drawn.advantage_N, wanted.drawn.advantage_N)
            assert groups._pool is not None
            for process in list(groups._pool._processes.values()):
                process.kill()
                process.join()


def test_lora_plays_with_the_trainers_weights_and_sends_the_adapter_alone(tmp_path: Path) -> None:
    path = write_run(tmp_path, steps=2, rollout='kinds = ["click", "type", "press", "answer"]')
    path.write_text(path.read_text().replace("longest = 128", "longest = 384") + "[lora]\nrank = 4\n")
    recipe = read_grpo_recipe(path)
    rollout, learner = Rollout(recipe, tmp_path / "episodes"), PolicyLearner(recipe, torch.device("cpu"))
    with rollout.engines(learner, tmp_path) as engines:
        model = engines.model
        engine, own = model.engine, dict(learner.model.named_parameters())
        first = send_weights(learner, engine, 0)
        shared = dict(engine.model.named_parameters())
        assert {"decoder.layers.0.mixer.D", "decoder.layers.0.mixer.conv1d.weight"} < shared.keys()
        assert all(parameter.data_ptr() == own[name].data_ptr() for name, parameter in shared.items())
        base = {name: parameter.clone() for name, parameter in shared.items()}
        ids = asyncio.run(play(model, ASKED, rollout.store))
        reader = reader_of(learner, model, rollout.store)
        weighed = [WeighedSequence(played, (1.0, -0.5, 0.3)) for [played] in reader.read(*ids)]
        batches = pack(Packer(TINY, recipe.batch), weighed, recipe.objective)
        for step in range(2):
            learner.update(batches, step, 0)
        going_on = model.open_session()
        held = held_changes(engine.model, POLICY)
        assert send_weights(learner, engine, 1) != first
        assert engine.loop.epoch == 1

        learner.export(tmp_path / "weights")
        fresh = load(tmp_path / "start", "cpu", torch.float32, adapters={"again": tmp_path / "adapter"})
        changed = held_changes(fresh, "again")
        assert changed.keys() == held.keys()
        assert {"mixer.in_proj", "mixer.o_proj"} < {".".join(layer.split(".")[-2:]) for layer in held}
        for layer, change in changed.items():  # in place: what sessions and recorded graphs compute with
            assert torch.equal(change.A_RI, held[layer].A_RI), layer
            assert torch.equal(change.B_OR, held[layer].B_OR), layer
            assert change.B_OR.any(), layer
        for name, parameter in fresh.named_parameters():
            assert torch.equal(parameter, base[name]), name
            assert torch.equal(parameter, shared[name]), name
        sequence = weighed[0].played.sequence
        text = [int(token) for token in sequence.token_ids if token != 5]
        with fresh.using("again"), engine.model.using(POLICY):
            assert torch.equal(fresh.score([text])[0], engine.model.score([text])[0])
        one = pack(Packer(TINY, recipe.batch), weighed[:1], recipe.objective)
        assert learner.difference(sequence, one[0], EngineHere(model).score(sequence)) < 2e-5
        going_on.close()
        with pytest.raises(EngineError, match="other layers, or by another rank"):
            engine.update_adapter(POLICY, dict(list(changes_of(learner).items())[1:]))


def test_an_episode_without_tokens_is_refused(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path, sync="never")
    from tests.train.samples import write_store

    write_store(tmp_path, episodes=1)
    masks = TokenMasks.__new__(TokenMasks)
    with pytest.raises(ExampleError, match="lacks tokens or log-probabilities"):
        PlayedReader(store, TINY, ASKED, masks).read(store.list_episodes()[0].id)
