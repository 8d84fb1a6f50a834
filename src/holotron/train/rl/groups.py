"""A group of attempts at one task and seed, and what each step of each of them was worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import pvariance

from holotron.train.rl.advantages import discounted_returns, group_advantages, step_advantages, teaches
from holotron.train.rl.config import ObjectiveConfig
from holotron.train.rl.replay import SuccessBuffer


@dataclass(frozen=True)
class Trajectory:
    """One attempt that says something about the policy. replayed: an earlier success in place of a failure."""

    episode: str
    task: str
    reward: float
    success: bool
    steps: int
    replayed: bool = False

    def value(self, config: ObjectiveConfig) -> float:
        """What is maximised."""
        success = float(self.success)
        partial = (success + max(0.0, self.reward)) / 2
        earned = {"success": success, "reward": self.reward, "partial": partial}[config.reward]
        return earned - config.step_cost * self.steps


@dataclass(frozen=True)
class RolloutGroup:
    """number: in the order in which groups were begun. version: of the weights then.

    Attempts that the infrastructure lost are not among its trajectories.
    """

    number: int
    task: str
    seed: int
    trajectories: tuple[Trajectory, ...]
    version: int = 0

    @classmethod
    def of(
        cls, number: int, task: str, seed: int, attempts: Iterable[Trajectory | None], version: int = 0
    ) -> RolloutGroup:
        """attempts: None for each that says nothing about the policy."""
        return cls(number, task, seed, tuple(attempt for attempt in attempts if attempt is not None), version)

    def values(self, config: ObjectiveConfig) -> list[float]:
        return [trajectory.value(config) for trajectory in self.trajectories]

    def teaches(self, config: ObjectiveConfig) -> bool:
        return teaches(self.values(config))

    @property
    def succeeded(self) -> int:
        return sum(trajectory.success for trajectory in self.trajectories)

    def with_replay(self, successes: SuccessBuffer, stored: Callable[[str], Trajectory]) -> RolloutGroup:
        """Where all attempts failed, with one stored success of the task in place of the last; else as it is.

        stored: the trajectory of an episode.
        """
        if self.succeeded or len(self.trajectories) < 2:
            return self
        episode = successes.draw(self.task, str(self.number))
        if episode is None:
            return self
        success = replace(stored(episode), replayed=True)
        return replace(self, trajectories=(*self.trajectories[:-1], success))

    def most_varied(self, most: int, config: ObjectiveConfig) -> RolloutGroup:
        """Its `most` trajectories whose values differ the most: some of the worst, some of the best. 0 are all."""
        values = self.values(config)
        order = sorted(range(len(values)), key=values.__getitem__)
        if not most or len(values) <= most:
            return self
        ways = [order[:worst] + order[len(order) - (most - worst) :] for worst in range(most + 1)]
        best = max(ways, key=lambda chosen: pvariance([values[place] for place in chosen]))
        return replace(self, trajectories=tuple(self.trajectories[place] for place in sorted(best)))

    def advantages(self, states: Sequence[Sequence[str]], config: ObjectiveConfig) -> list[list[float]]:
        """Of each step of each trajectory: the attempt's own, and with `step_weight` the step's.

        states: what each step of each trajectory saw, by hash.
        """
        values = self.values(config)
        whole = group_advantages(values, config.by_std)
        steps: Sequence[Sequence[float]] = [[0.0] * len(seen) for seen in states]
        if config.step_weight:
            pairs = zip(values, states, strict=True)
            returns = [discounted_returns(value, len(seen), config.discount) for value, seen in pairs]
            steps = step_advantages(states, returns, config.by_std)
        return [
            [advantage + config.step_weight * step for step in of_steps]
            for advantage, of_steps in zip(whole, steps, strict=True)
        ]
