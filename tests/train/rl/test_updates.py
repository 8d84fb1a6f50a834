"""Switches that act on whole updates and iterations, against a few lines of plain code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from holotron.agent.chat import Message
from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo, EpisodeInfo, Outcome, PolicyInfo
from holotron.model.loading import load
from holotron.suites.bandit import PARTS, BanditSuite
from holotron.suites.live_play import Ended
from holotron.train.batches import Packer
from holotron.train.rl.collector import Collector
from holotron.train.rl.config import ObjectiveConfig, read_grpo_recipe
from holotron.train.rl.ledger import Ledger
from holotron.train.rl.played import PlayedSequence
from holotron.train.rl.policy_learner import PolicyLearner
from holotron.train.rl.rollout_batch import RolloutBatch, WeighedSequence, pack
from holotron.train.rl.task_sampler import TaskSampler
from holotron.train.sequences import SequenceWriter

from .in_play import RECIPE, simulate
from .samples import TINY, write_run

ANSWERS = ("left", "right now", "no")


def learner_of(folder: Path, more: str = "", **changes: Any) -> PolicyLearner:
    path = write_run(folder, steps=4)
    path.write_text(path.read_text() + "clip = 1e9\n" + more)  # gradients as they are
    return PolicyLearner(read_grpo_recipe(path, **changes), torch.device("cpu"))


def played(learner: PolicyLearner, answer: str) -> PlayedSequence:
    """An episode of one step, drawn by some engine with other log-probabilities."""
    sequence = SequenceWriter(learner.writer).write_turns([([Message("user", f"Say {answer}")], answer, True)])
    drawn, chance = int(sequence.learn.sum()), np.random.default_rng(len(answer))
    allowed = np.full((drawn, -(-TINY.vocab_size // 32)), -1, np.int32)
    zeros = np.zeros(drawn, np.int64)
    return PlayedSequence(sequence, chance.normal(-8, 0.3, drawn).astype(np.float32), zeros, zeros, allowed, ("",))


def batches(learner: PolicyLearner, *answers: str, advantage: float = 0.5) -> list[RolloutBatch]:
    weighed = [WeighedSequence(played(learner, answer), (advantage,)) for answer in answers]
    return pack(Packer(TINY, learner.recipe.batch), weighed, learner.recipe.objective)


def plain(model: Any, learner: PolicyLearner, *answers: str) -> Tensor:
    """Log-probabilities of the drawn tokens by the model's own scores."""
    found = []
    for answer in answers:
        sequence = played(learner, answer).sequence
        logits = model.score([sequence.token_ids.tolist()])[0].log_softmax(-1)
        found += [logits[place - 1, sequence.token_ids[place]] for place in sequence.learn.nonzero()[0]]
    return torch.stack(found)


def used(values_N: Tensor, batch: RolloutBatch) -> Tensor:
    return values_N[batch.drawn.weight_N > 0]


@pytest.mark.parametrize("by_length", [False, True])
def test_tokens_are_weighed_by_a_constant_or_by_the_length_of_their_episode(tmp_path: Path, by_length: bool) -> None:
    learner = learner_of(tmp_path)
    lengths = [len(played(learner, answer).engine) for answer in ANSWERS]
    assert len(set(lengths)) == 3
    weighed = [WeighedSequence(played(learner, answer), (1.0,)) for answer in ANSWERS]
    config = ObjectiveConfig(by_length=by_length, tokens=8.0)
    [batch] = pack(Packer(TINY, learner.recipe.batch), weighed, config)
    expected = [1 / (3 * (length if by_length else 8.0)) for length in lengths for _ in range(length)]
    assert used(batch.drawn.weight_N, batch).tolist() == pytest.approx(expected, abs=1e-6)


def test_a_second_update_is_clipped_against_the_weights_before_the_first(tmp_path: Path) -> None:
    learner = learner_of(tmp_path, updates=2)
    before = plain(learner.model, learner, "no").detach()
    first, second = (list(learner.passes(batches(learner, answer))[0]) for answer in ("left", "no"))
    learner.update(first, 0, 0)
    now = plain(learner.model, learner, "no").detach()
    report = learner.update(second, 0, 0)
    assert used(second[0].drawn.old_N, second[0]).tolist() == pytest.approx(before.tolist(), abs=1e-5)
    means = report.sums.means()
    ratio = (now - before).exp()
    assert ratio.sub(1).abs().max() > 1e-3
    assert means["ratio"] == pytest.approx(ratio.mean().item(), abs=1e-5)
    engine = torch.from_numpy(played(learner, "no").engine)
    weight = (before - engine).exp().clamp_max(2.0)
    gain = torch.minimum(ratio * 0.5, ratio.clamp(0.8, 1.28) * 0.5)
    assert report.loss.item() == pytest.approx(-(weight * gain).sum().item() / 8.0, abs=1e-6)


@pytest.mark.parametrize("cap", [0.0, 2.0])
def test_a_second_epoch_learns_from_the_same_batches_and_is_clipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: float
) -> None:
    learner = learner_of(tmp_path, epochs=2, objective={"importance_cap": cap, "tokens": 8.0})
    before, engine = plain(learner.model, learner, "no").detach(), torch.from_numpy(played(learner, "no").engine)
    passes, logprobs = list[RolloutBatch](), learner.logprobs
    monkeypatch.setattr(learner, "logprobs", lambda batch: passes.append(batch) or logprobs(batch))
    once, again = learner.passes(iter(batches(learner, "no")))  # packed while others are learned from
    first = learner.update(once, 0, 0)
    now = plain(learner.model, learner, "no").detach()
    second = learner.update(again, 0, 0)
    assert len(passes) == 2  # of them alone: the first says the log-probabilities before it
    old = before if cap else engine
    weight = (before - engine).exp().clamp_max(cap) if cap else torch.ones_like(before)

    def loss(now: Tensor) -> float:
        ratio = (now - old).exp()
        return -(weight * torch.minimum(ratio * 0.5, ratio.clamp(0.8, 1.28) * 0.5)).sum().item() / 8.0

    assert first.loss.item() == pytest.approx(loss(before), abs=1e-6)
    assert (now - old).exp().sub(1).abs().max() > 1e-3
    assert second.loss.item() == pytest.approx(loss(now), abs=1e-6)


@pytest.mark.parametrize("replayed", [False, True])
def test_a_replayed_success_is_not_weighted_by_how_unlikely_it_is_now(tmp_path: Path, replayed: bool) -> None:
    learner = learner_of(tmp_path)
    now, one = plain(learner.model, learner, "left").detach(), played(learner, "left")
    weight = (now - torch.from_numpy(one.engine)).exp().clamp_max(2.0)
    assert weight.sub(1).abs().min() > 1e-3
    [batch] = pack(
        Packer(TINY, learner.recipe.batch), [WeighedSequence(one, (0.5,), replayed)], learner.recipe.objective
    )
    report = learner.update([batch], 0, 0)
    weight = torch.ones_like(weight) if replayed else weight
    assert report.sums.means()["importance"] == pytest.approx(weight.mean().item(), abs=1e-5)
    assert report.loss.item() == pytest.approx(-0.5 * weight.sum().item() / 8.0, abs=1e-6)
    # Nor does it say how far engine and trainer are from each other.
    assert report.sums.means()["fresh_tokens"] == (0 if replayed else len(weight))


def test_with_lora_the_divergence_is_from_the_model_without_it(tmp_path: Path) -> None:
    learner = learner_of(tmp_path, "[lora]\nrank = 4\n", objective={"kl": 0.3, "tokens": 8.0})
    learner.update(batches(learner, *ANSWERS), 0, 0)  # away from the beginning
    [[batch]] = learner.passes(batches(learner, *ANSWERS, advantage=0.0))
    base = load(tmp_path / "start", "cpu", torch.float32)
    reference, now = plain(base, learner, *ANSWERS), plain(learner.model, learner, *ANSWERS)
    assert batch.drawn.reference_N is not None
    assert used(batch.drawn.reference_N, batch).tolist() == pytest.approx(reference.tolist(), abs=1e-5)
    divergence = (reference - now).exp() - (reference - now) - 1
    assert divergence.mean() > 1e-4
    report = learner.update([batch], 1, 0)
    assert report.sums.means()["kl"] == pytest.approx(divergence.mean().item(), abs=1e-6)
    assert report.loss.item() == pytest.approx(0.3 * divergence.sum().item() / (3 * 8.0), abs=1e-6)


def test_imitation_adds_the_gradient_of_a_supervised_loss(tmp_path: Path) -> None:
    imitation = {"objective": {"imitation": 0.4, "tokens": 8.0}, "data": [{"store": "teachers"}]}
    learner = learner_of(tmp_path, **imitation)
    weights = {name: parameter.detach().clone() for name, parameter in learner.model.named_parameters()}
    taught = Packer(TINY, learner.recipe.batch).build([played(learner, answer).sequence for answer in ANSWERS])
    loss = -plain(learner.model, learner, *ANSWERS).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    expected = {name: 0.4 * p.grad.clone() for name, p in learner.model.named_parameters() if p.grad is not None}
    report = learner.update(batches(learner, "left", advantage=0.0), 0, 0, taught)
    assert report.imitation is not None
    assert report.imitation.item() == pytest.approx(loss.item(), abs=1e-5)
    assert len(expected) > 10
    for name, parameter in learner.model.named_parameters():
        if name in expected:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6)
    moved = [name for name, parameter in learner.model.named_parameters() if not torch.equal(parameter, weights[name])]
    assert set(moved) >= expected.keys()


class Play:
    """Attempts that end at once: "left" always well, "middle" every other time."""

    def __init__(self) -> None:
        self.ended: list[Ended] = []

    def put(self, task: Task) -> None:
        good = task.name == "left" or (task.name == "middle" and task.sample % 2 == 0)
        info = EpisodeInfo(
            id=f"{task.seed}-{task.sample}",
            task=task,
            policy=PolicyInfo(model="none"),
            environment=EnvironmentInfo(name="none"),
            started=0.0,
            outcome=Outcome(reason="done", success=good, reward=float(good)),
            step_count=1,
        )
        self.ended.append(Ended(task, info))

    def take(self, seconds: float | None = None) -> Ended | None:
        return self.ended.pop() if self.ended else None


@pytest.mark.parametrize("refill", [0.0, 0.5, 4.0])
def test_groups_that_teach_nothing_are_played_anew(tmp_path: Path, refill: float) -> None:
    path = write_run(tmp_path, steps=1, count=6)
    path.write_text(path.read_text().replace("refill = 1.0", f"refill = {refill}\nreplay = 0\nuniform = 1.0"))
    recipe, play, ledger = read_grpo_recipe(path), Play(), Ledger()
    found = Collector(recipe, BanditSuite(), PARTS, play, ledger, lambda _: pytest.fail("nothing is stored")).collect()  # type: ignore[arg-type]

    sampler, kept, flat, number = TaskSampler(PARTS, recipe.seed, uniform=1.0), list[int](), 0, 0
    while len(kept) < 6 and number < 6 * (1 + refill):
        if sampler.draw(number) == "middle":
            kept.append(number)
        else:
            flat += 1
        number += 1
    assert [group.number for group in found.groups] == kept
    assert flat > 0
    assert (found.flat, found.judged, ledger.begun) == (flat, number, number)
    assert (len(kept) == 6) == (refill == 4.0)


def test_what_is_played_while_the_trainer_learns_is_read_meanwhile(tmp_path: Path) -> None:
    path = write_run(tmp_path, steps=1, count=2, staleness=1)
    path.write_text(path.read_text().replace("refill = 1.0", "refill = 4.0\nreplay = 0\nuniform = 1.0"))
    recipe, ledger, kept, dropped = read_grpo_recipe(path), Ledger(), list[int](), list[int]()
    collector = Collector(
        recipe,
        BanditSuite(),
        PARTS,
        Play(),  # type: ignore[arg-type]
        ledger,
        lambda _: pytest.fail("nothing is stored"),
        keep=lambda group: kept.append(group.number),
        drop=dropped.append,
    )
    collector.begin(12)
    teaching = [number for number, group in ledger.open.items() if group.task == "middle"]
    collector.listen()
    assert 3 < len(teaching) < 12
    assert sorted(kept) == teaching
    assert len(ledger.open) == 12  # judged only when they are asked for
    assert [group.number for group in collector.collect().groups] == teaching[:2]
    assert not dropped
    ledger.version = 2
    assert collector.collect().stale > 1
    assert set(dropped) >= set(teaching[2:])


def test_sessions_have_groups_to_play_while_the_trainer_learns() -> None:
    told = simulate(read_grpo_recipe(RECIPE), 2.0, 24)
    assert told["sessions_at_play"] > 0.95
    assert told["stale"] == 0
    fewer = read_grpo_recipe(RECIPE, ["rollout.staleness=3"])
    assert simulate(fewer, 2.0, 24)["sessions_at_play"] < 0.85
