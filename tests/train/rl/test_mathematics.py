"""Each switch of the objective against a few lines of plain code."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from holotron.train.recipe import RecipeError
from holotron.train.rl.config import GroupConfig, GrpoRecipe, ObjectiveConfig, RolloutConfig, read_grpo_recipe
from holotron.train.rl.groups import RolloutGroup, Trajectory
from holotron.train.rl.policy_loss import DrawnTokens, policy_loss
from holotron.train.rl.replay import SuccessBuffer
from holotron.train.rl.task_sampler import TaskSampler

REWARDS = [1.0, 0.0, 0.0, 1.0, 0.0]
# What each attempt saw, step by step: "a" is the first screenshot of all, "b" is seen twice by one of them.
STATES = ["abc", "ab", "abbd", "ae", "a"]


def group(rewards: list[float] = REWARDS, states: list[str] = STATES) -> RolloutGroup:
    attempts = [
        Trajectory(f"e{i}", "task", reward, reward > 0.5, len(seen))
        for i, (reward, seen) in enumerate(zip(rewards, states, strict=True))
    ]
    return RolloutGroup.of(0, "task", 7, attempts)


@pytest.mark.parametrize("by_std", [False, True])
def test_advantages_of_a_group(by_std: bool) -> None:
    mean = sum(REWARDS) / 5
    scale = math.sqrt(sum((r - mean) ** 2 for r in REWARDS) / 4) + 1e-6 if by_std else 1
    found = group().advantages(STATES, ObjectiveConfig(by_std=by_std))
    assert [len(steps) for steps in found] == [len(seen) for seen in STATES]
    for reward, steps in zip(REWARDS, found, strict=True):
        assert steps == pytest.approx([(reward - mean) / scale] * len(steps), abs=1e-6)


@pytest.mark.parametrize("by_std", [False, True])
def test_step_level_advantages_compare_identical_screenshots(by_std: bool) -> None:
    config = ObjectiveConfig(by_std=by_std, step_weight=0.5, discount=0.9)
    plain = [steps[0] for steps in group().advantages(STATES, replace(config, step_weight=0.0))]
    for attempt, steps in enumerate(group().advantages(STATES, config)):
        for step, advantage in enumerate(steps):
            state, worth = STATES[attempt][step], lambda a, s: REWARDS[a] * 0.9 ** (len(STATES[a]) - 1 - s)
            same = [worth(a, s) for a in range(5) for s in range(len(STATES[a])) if STATES[a][s] == state]
            expected = worth(attempt, step) - sum(same) / len(same)
            if by_std:
                expected = expected / (statistics.stdev(same) + 1e-6) if len(same) > 1 else 0.0
            assert advantage == pytest.approx(plain[attempt] + 0.5 * expected, abs=1e-6)


def test_rewards_steps_cost_and_groups_that_teach_nothing() -> None:
    config = ObjectiveConfig(step_cost=0.1)
    assert group().values(config) == pytest.approx([0.7, -0.2, -0.4, 0.8, -0.1])
    half = group([0.5, 0.9, 0.5, 0.5, 0.5])  # rewards, of which one is a success by its rule
    assert half.values(ObjectiveConfig()) == [0, 1, 0, 0, 0]
    assert half.values(ObjectiveConfig(reward="reward")) == [0.5, 0.9, 0.5, 0.5, 0.5]
    near = group([0.5, 0.9, 0.0, -1.0, -0.3])
    assert near.values(ObjectiveConfig(reward="partial")) == pytest.approx([0.25, 0.95, 0, 0, 0])
    assert half.teaches(ObjectiveConfig())
    assert not group([0.0] * 5).teaches(ObjectiveConfig())
    assert not group([1.0] * 5).teaches(ObjectiveConfig())
    assert group([0.0] * 5).teaches(config)  # some failed sooner


def test_what_the_infrastructure_lost_is_not_in_a_group() -> None:
    good, bad = group([1.0, 0.0], ["a", "a"]).trajectories
    with_lost = RolloutGroup.of(0, "task", 7, [good, None, bad, None])
    assert with_lost.advantages(["a", "a"], ObjectiveConfig()) == [[0.5], [-0.5]]  # not 0.75 and -0.25
    assert not RolloutGroup.of(0, "task", 7, [good, None]).teaches(ObjectiveConfig())


def test_a_stored_success_goes_into_a_group_that_failed() -> None:
    stored = {f"s{i}": Trajectory(f"s{i}", "task", 1.0, True, 2) for i in range(4)}
    successes = SuccessBuffer(3)
    failed = group([0.0] * 5)
    assert failed.with_replay(successes, stored.__getitem__) is failed  # nothing is stored yet
    for episode in stored:
        successes.add("task", episode)
    assert successes.state() == {"task": ["s1", "s2", "s3"]}  # the last three
    shown = failed.with_replay(SuccessBuffer(3, successes.state()), stored.__getitem__)
    assert shown == failed.with_replay(successes, stored.__getitem__)  # drawn by the group's number
    assert shown.trajectories[:4] == failed.trajectories[:4]
    assert (shown.trajectories[4].replayed, shown.trajectories[4].success) == (True, True)
    assert shown.advantages([*STATES[:4], "xy"], ObjectiveConfig()) == [
        [-0.2] * 3,
        [-0.2] * 2,
        [-0.2] * 4,
        [-0.2] * 2,
        [0.8] * 2,
    ]
    assert group().with_replay(successes, stored.__getitem__) == group()  # it has successes of its own


@pytest.mark.parametrize("rewards", [[1.0, 0.0, 0.0, 0.0, 0.0], [0.9, 0.1, 0.5, 0.4, 0.0], [1.0, 1.0, 1.0, 0.0, 1.0]])
@pytest.mark.parametrize("most", [2, 3, 4])
def test_the_attempts_that_differ_the_most_are_learned_from(rewards: list[float], most: int) -> None:
    whole, config = group(rewards), ObjectiveConfig(reward="reward")
    kept = whole.most_varied(most, config)
    every = [statistics.pvariance(chosen) for chosen in itertools.combinations(rewards, most)]
    assert statistics.pvariance(kept.values(config)) == pytest.approx(max(every), abs=1e-9)
    assert [each for each in whole.trajectories if each in kept.trajectories] == list(kept.trajectories)
    assert whole.most_varied(0, config) is whole
    with pytest.raises(ValueError, match="learned is 9; it must be 2 to 8"):
        GroupConfig(learned=9)


def test_tasks_are_drawn_by_how_much_they_teach() -> None:
    sampler = TaskSampler(["never", "half", "always", "new"], 3, uniform=0.2, memory=16)
    assert sampler.even_success() is None
    for _ in range(4):
        sampler.add("never", 0, 8)
        sampler.add("half", 4, 8)
        sampler.add("always", 8, 8)
    success = [1 / 18, 9 / 18, 17 / 18, 1 / 2]  # of the last 16, with one more of each
    spread = [p * (1 - p) for p in success]
    assert sampler.weights() == pytest.approx([0.05 + 0.8 * s / sum(spread) for s in spread], abs=1e-6)
    assert sampler.even_success() == pytest.approx(0.5)  # the new one was not tried yet
    again = TaskSampler(["never", "half", "always", "new"], 3, uniform=0.2, memory=16, kept=sampler.state())
    draws = [sampler.draw(number) for number in range(2000)]
    assert draws == [again.draw(number) for number in range(2000)]
    assert draws.count("half") / 2000 == pytest.approx(sampler.weights()[1], abs=0.04)
    assert draws.count("never") / 2000 == pytest.approx(sampler.weights()[0], abs=0.03)


def test_several_suites_are_drawn_by_their_shares():
    """However many tasks a suite has, and however much they teach."""
    tasks = ["many/a", "many/b", "many/c", "few/d"]
    sampler = TaskSampler(tasks, 3, uniform=0.2, shares={"few": 3, "many": 1})
    sampler.add("many/a", 5, 10)
    sampler.add("many/b", 10, 10)
    weights = dict(zip(tasks, sampler.weights(), strict=True))
    assert weights["few/d"] == pytest.approx(0.75)
    assert sum(weights.values()) == pytest.approx(1.0)
    alone = TaskSampler(tasks[:3], 3, uniform=0.2, kept=sampler.state())
    assert [weights[task] * 4 for task in tasks[:3]] == pytest.approx(alone.weights())


# ---- the loss ----

# Two answers of three tokens and one of two; the last token is padding.
ANSWERS = [0, 0, 0, 1, 1, 1, 2, 2, 2]
ADVANTAGES = [0.7, 0.7, 0.7, -0.4, -0.4, -0.4, 1.3, 1.3, 9.9]
WEIGHTS = [1.0] * 8 + [0.0]


def drawn() -> tuple[torch.Tensor, DrawnTokens]:
    chance = torch.Generator().manual_seed(0)

    def some(scale: float) -> torch.Tensor:
        return scale * torch.randn(9, generator=chance, dtype=torch.float64)

    engine = -some(1.0).abs() - 0.1
    old = engine + some(0.5)
    new = (old + some(0.4)).requires_grad_()
    return new, DrawnTokens(
        torch.tensor(ADVANTAGES, dtype=torch.float64),
        engine,
        old,
        torch.tensor(WEIGHTS, dtype=torch.float64),
        torch.tensor(ANSWERS),
        new.detach() + some(0.3),
    )


def plainly(new: list[float], tokens: DrawnTokens, config: ObjectiveConfig, i: int) -> float:
    """The loss of one token, as the papers write it."""
    capped = config.importance_cap > 0
    before = (tokens.old_N if capped else tokens.engine_N).tolist()
    if config.ratio == "token":
        ratio = math.exp(new[i] - before[i])
    else:
        same = [j for j in range(9) if ANSWERS[j] == ANSWERS[i] and WEIGHTS[j]]
        ratio = math.exp(sum(new[j] - before[j] for j in same) / len(same))
    bound = min(max(ratio, 1 - config.clip_low), 1 + config.clip_high)
    gain = min(ratio * ADVANTAGES[i], bound * ADVANTAGES[i])
    weight = 1.0
    if capped:
        weight = min(math.exp(tokens.old_N[i].item() - tokens.engine_N[i].item()), config.importance_cap)
    loss = -weight * gain
    if config.kl:
        assert tokens.reference_N is not None
        behind = tokens.reference_N[i].item() - new[i]
        loss += config.kl * (math.exp(behind) - behind - 1)
    return loss


SWITCHES: list[dict[str, Any]] = [
    {},
    {"clip_low": 0.05, "clip_high": 0.1},
    {"ratio": "sequence"},
    {"importance_cap": 1.1},
    {"importance_cap": 0.0},
    {"importance_cap": 0.0, "ratio": "sequence"},
    {"kl": 0.3},
]


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_the_loss_and_its_gradient(switches: dict[str, Any]) -> None:
    config, (new, tokens) = ObjectiveConfig(**switches), drawn()
    found = policy_loss(new, tokens, config)
    values = new.tolist()
    expected = [plainly(values, tokens, config, i) for i in range(8)]
    assert found.loss_N[:8].tolist() == pytest.approx(expected, abs=1e-6)
    (found.loss_N * tokens.weight_N).sum().backward()  # type: ignore[no-untyped-call]
    assert new.grad is not None
    for k in range(9):

        def total(change: float, k: int = k) -> float:
            moved = [value + change * (j == k) for j, value in enumerate(values)]
            return sum(plainly(moved, tokens, config, i) for i in range(8))

        assert new.grad[k].item() == pytest.approx((total(1e-6) - total(-1e-6)) / 2e-6, abs=1e-6)


def test_what_is_told_about_ratios() -> None:
    config, (new, tokens) = ObjectiveConfig(importance_cap=1.5), drawn()
    found = policy_loss(new, tokens, config)
    ratios = [math.exp(n - o) for n, o in zip(new.tolist(), tokens.old_N.tolist(), strict=True)]
    assert found.ratio_N.tolist() == pytest.approx(ratios)
    bound = [r > 1.28 if a > 0 else r < 0.8 for r, a in zip(ratios, ADVANTAGES, strict=True)]
    assert found.clipped_N.tolist() == bound
    assert True in bound
    assert found.importance_N.max() == 1.5


def test_recipes_that_cannot_be_followed_say_why() -> None:
    rollout = RolloutConfig(suite="bandit")
    for wrong, why in (
        (lambda: ObjectiveConfig(ratio="word"), "ratio is 'word'; known are token, sequence"),  # type: ignore[arg-type]
        (lambda: ObjectiveConfig(clip_low=1.5), "clip_low 1.5"),
        (lambda: RolloutConfig(suite="bandit", temperature=0.0), "all attempts of a group are the same"),
        (lambda: GrpoRecipe(name="r", start="s", steps=1, rollout=rollout, updates=9), "updates is 9"),
        (
            lambda: GrpoRecipe(name="r", start="s", steps=1, rollout=rollout, objective=ObjectiveConfig(imitation=0.1)),
            "go together",
        ),
    ):
        with pytest.raises((ValueError, RecipeError), match=why):
            wrong()


def test_values_of_a_recipe_are_set_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('name = "r"\nstart = "s"\nsteps = 1\n[rollout]\nsuite = "bandit"\n[objective]\nkl = 0.5\n')
    settings = ("objective.clip_high=0.2", "groups.replay=0", "rollout.tasks=['left']", "rollout.suite=pages", "seed=7")
    recipe = read_grpo_recipe(path, settings, steps=3)
    assert recipe.objective == ObjectiveConfig(kl=0.5, clip_high=0.2)
    assert (recipe.groups.replay, recipe.rollout.tasks, recipe.rollout.suite) == (0, ("left",), "pages")
    assert (recipe.seed, recipe.steps, recipe.folder) == (7, 3, tmp_path)
    for wrong, why in (("steps", "write it like"), ("name.x=1", "name.x=1' sets nothing"), ("groups.sise=1", "'sise'")):
        with pytest.raises(RecipeError, match=why):
            read_grpo_recipe(path, (wrong,))
