"""Groups for an iteration: begun, waited for, judged, and begun anew where they teach nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holotron.train.parallel import Ranks
from holotron.train.rl.config import GrpoRecipe
from holotron.train.rl.groups import RolloutGroup, Trajectory
from holotron.train.rl.ledger import Ledger, OpenGroup
from holotron.train.rl.replay import SuccessBuffer
from holotron.train.rl.task_sampler import TaskSampler

if TYPE_CHECKING:  # playing needs pydantic
    from holotron.episodes.record import EpisodeInfo
    from holotron.suites.live_play import Ended, LivePlay
    from holotron.suites.suite import Suite

PATIENCE = 1.0  # seconds after which one that waits looks whether it is to stop
SHORT_PATIENCE = 0.1  # the same where others wait for it


class Stopped(Exception):
    """It was asked to stop while it waited for attempts."""


@dataclass
class Collected:
    """The groups to learn from, and what became of the others; attempts: all that were judged, by task."""

    groups: list[RolloutGroup] = field(default_factory=list)
    judged: int = 0
    flat: int = 0
    stale: int = 0
    lost: int = 0
    replayed: int = 0
    staleness: list[int] = field(default_factory=list)
    attempts: list[Trajectory] = field(default_factory=list)


class Collector:
    """Keeps as many groups in play as their age allows. keep: told of each group that this rank will learn from, often
    before it is judged; drop: told of the number of one that it will not learn from after all.

    Each of several ranks plays its share of the groups; all are told how every attempt ended, and judge alike.
    """

    def __init__(
        self,
        recipe: GrpoRecipe,
        suite: Suite[Any],
        tasks: tuple[str, ...],
        play: LivePlay,
        ledger: Ledger,
        stored: Callable[[str], EpisodeInfo],
        stopped: Callable[[], bool] = lambda: False,
        keep: Callable[[RolloutGroup], None] = lambda _: None,
        drop: Callable[[int], None] = lambda _: None,
        ranks: Ranks = Ranks(),
    ) -> None:
        self._recipe, self._suite, self._play, self._ledger = recipe, suite, play, ledger
        self._stored, self._stopped, self._keep, self._drop, self._ranks = stored, stopped, keep, drop, ranks
        groups = recipe.groups
        self.sampler = TaskSampler(
            tasks,
            recipe.seed,
            uniform=groups.uniform,
            memory=groups.memory,
            shares=recipe.rollout.shares,
            kept=ledger.sampler,
        )
        self.successes = SuccessBuffer(groups.replay, ledger.successes)
        self._attempts: dict[int, dict[int, EpisodeInfo | None]] = {}
        for group in ledger.open.values():
            self._put(group)

    def collect(self) -> Collected:
        """Groups that teach, `count` of them unless refilling has its end."""
        groups, staleness, found = self._recipe.groups, self._recipe.rollout.staleness, Collected()
        most = round(groups.count * (1 + groups.refill))
        while len(found.groups) < groups.count and found.judged < most:
            ahead = (staleness + 1) * groups.count - len(found.groups)
            self.begin(ahead if staleness else min(ahead, most - found.judged))
            for group in self._complete(groups.count - len(found.groups)):
                self._judge(group, found)
        self.begin(staleness * groups.count)  # what is played while these are learned from
        self._ledger.sampler, self._ledger.successes = self.sampler.state(), self.successes.state()
        return found

    def begin(self, ahead: int) -> None:
        """Begin groups until so many are open."""
        ledger = self._ledger
        while len(ledger.open) < ahead:
            number = ledger.begun
            seed = self._recipe.rollout.first_seed + number
            group = OpenGroup(number, self.sampler.draw(number), seed, ledger.version)
            ledger.begun, ledger.open[number] = number + 1, group
            self._put(group)

    def _put(self, group: OpenGroup) -> None:
        self._attempts[group.number] = {}
        if group.number % self._ranks.size != self._ranks.rank:
            return
        task = self._suite.task(group.task, group.seed)
        for sample in range(self._recipe.groups.size):
            extra = task.extra | {"group": group.number}
            self._play.put(task.model_copy(update={"sample": sample, "extra": extra}))

    def _complete(self, most: int) -> list[OpenGroup]:
        """Groups all of whose attempts have ended, in the order they were begun.

        Synchronously all that are open, so that nothing depends on which ended first.
        """
        ledger, wanted = self._ledger, len(self._ledger.open)
        if self._recipe.rollout.staleness:
            wanted = 1
        while True:
            size = self._recipe.groups.size
            done = [group for group in ledger.open.values() if len(self._attempts[group.number]) == size]
            if len(done) >= wanted:
                return sorted(done, key=lambda group: group.number)[:most]
            self._hear()

    def _hear(self) -> None:
        """Wait for attempts that end; of several ranks, for what has ended on any of them."""
        alone = self._ranks.size == 1
        ended = [self._play.take(PATIENCE if alone else SHORT_PATIENCE)]
        while not alone and ended[-1] is not None:
            ended.append(self._play.take(0.0))
        told = self._ranks.gather((self._stopped(), [each for each in ended if each is not None]))
        if any(stopped for stopped, _ in told):
            raise Stopped
        for each in (each for _, of_rank in told for each in of_rank):
            self._note(each)

    def listen(self) -> None:
        """Hear what has ended, while the trainer is at something else: what will be learned from is read meanwhile.

        Of several ranks, each would have to hear the same; synchronously nothing is played meanwhile.
        """
        if self._ranks.size > 1:
            return
        while (ended := self._play.take(0.0)) is not None:
            number = self._note(ended)
            group, attempts = self._ledger.open[number], self._attempts[number]
            if len(attempts) == self._recipe.groups.size:
                shown = self._judged(group, attempts).most_varied(self._recipe.groups.learned, self._recipe.objective)
                if shown.teaches(self._recipe.objective):
                    self._keep(shown)

    def _note(self, ended: Ended) -> int:
        number = ended.task.extra["group"]
        assert isinstance(number, int)
        self._attempts[number][ended.task.sample] = ended.info
        return number

    def _judged(self, group: OpenGroup, attempts: Mapping[int, EpisodeInfo | None]) -> RolloutGroup:
        infos = [info for _, info in sorted(attempts.items())]
        told = [None if info is None else trajectory_of(info, group.task) for info in infos]
        return RolloutGroup.of(group.number, group.task, group.seed, told, group.version)

    def _judge(self, group: OpenGroup, found: Collected) -> None:
        ledger, config = self._ledger, self._recipe.objective
        attempts = self._attempts.pop(group.number)
        del ledger.open[group.number]
        judged = self._judged(group, attempts)
        found.judged += 1
        found.lost += len(attempts) - len(judged.trajectories)
        found.attempts += judged.trajectories
        self.sampler.add(group.task, judged.succeeded, len(judged.trajectories))
        for trajectory in judged.trajectories:
            if trajectory.success:
                self.successes.add(group.task, trajectory.episode)
        shown = judged.with_replay(self.successes, lambda episode: trajectory_of(self._stored(episode), group.task))
        found.replayed += shown is not judged
        shown = shown.most_varied(self._recipe.groups.learned, config)
        if ledger.version - group.version > self._recipe.rollout.staleness:
            found.stale += 1
            self._drop(group.number)
        elif shown.teaches(config):
            if learns_from(len(found.groups), self._recipe, self._ranks):
                self._keep(shown)
            found.groups.append(shown)
            found.staleness.append(ledger.version - group.version)
        else:
            found.flat += 1


def learns_from(place: int, recipe: GrpoRecipe, ranks: Ranks) -> bool:
    """Whether this rank learns from the group at a place of an iteration: ranks take turns, for each update anew."""
    return place // recipe.updates % ranks.size == ranks.rank


def trajectory_of(info: EpisodeInfo, task: str) -> Trajectory:
    """task: what its suite calls it."""
    outcome = info.outcome
    assert outcome is not None
    return Trajectory(info.id, task, outcome.reward or 0.0, outcome.success is True, info.step_count or 0)
