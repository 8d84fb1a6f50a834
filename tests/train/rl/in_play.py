"""How many sessions play while a trainer learns: the real Collector of a recipe, with a clock that is simulated.

    python -m tests.train.rl.in_play --learning 6 2.5 1.5 --set rollout.staleness=4

An attempt takes 0.3 s and 0.85 s a step, 3 steps in the mean, as 224 sessions that play 240 steps/s together. Half of
the groups end all alike. `--learning`: seconds of an iteration besides waiting for attempts. `--pause`: for which all
sessions stand still in each, while engines change their weights.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path

from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo, EpisodeInfo, Outcome, PolicyInfo
from holotron.suites.bandit import PARTS, BanditSuite
from holotron.suites.live_play import Ended
from holotron.train.rl.collector import Collector
from holotron.train.rl.config import GrpoRecipe, read_grpo_recipe
from holotron.train.rl.ledger import Ledger

RECIPE = Path(__file__).parents[3] / "recipes" / "grpo-miniwob.toml"
BEGIN, STEP = 0.3, 0.85  # seconds of an attempt, and of each of its steps
ON = 0.68  # how likely another step follows
ALIKE, EASY = 0.55, 0.3  # the share of groups that end all alike, and of those that succeed


@dataclass
class Sessions:
    """Attempts that take their time by a clock that goes on when they are waited for. busy: seconds of all sessions."""

    count: int
    now: float = 0.0
    busy: float = 0.0
    steps: int = 0
    _waiting: list[Task] = field(default_factory=list)
    _playing: list[tuple[float, int, int, Task]] = field(default_factory=list)
    _begun: int = 0
    _chance: random.Random = field(default_factory=lambda: random.Random(1))

    def put(self, task: Task) -> None:
        self._waiting.append(task)
        self._begin(self.now)

    def _begin(self, now: float) -> None:
        while self._waiting and len(self._playing) < self.count:
            steps, chance = 1, self._chance
            while steps < 12 and chance.random() < ON:
                steps += 1
            seconds = BEGIN + STEP * steps * chance.uniform(0.6, 1.4)
            self.busy += seconds
            self._begun += 1
            heappush(self._playing, (now + seconds, self._begun, steps, self._waiting.pop(0)))

    def pause(self, seconds: float) -> None:
        """All of them are where they are for so long."""
        self._playing = [(end + seconds, *rest) for end, *rest in self._playing]  # type: ignore[misc]

    def take(self, seconds: float | None = None) -> Ended | None:
        until = self.now + (seconds or 0.0)
        if not self._playing or self._playing[0][0] > until:
            self.now = until
            return None
        end, _, steps, task = heappop(self._playing)
        self._begin(end)  # others may have ended long before they are heard of
        self.now, self.steps = max(self.now, end), self.steps + steps
        kind = random.Random(str(task.seed)).random()
        success = kind < EASY if kind < ALIKE else self._chance.random() < 0.5
        return Ended(task, _info(task, success, steps))


def _info(task: Task, success: bool, steps: int) -> EpisodeInfo:
    return EpisodeInfo(
        id=f"{task.seed}-{task.sample}",
        task=task,
        policy=PolicyInfo(model="none"),
        environment=EnvironmentInfo(name="none"),
        started=0.0,
        outcome=Outcome(reason="done", success=success, reward=float(success)),
        step_count=steps,
    )


def simulate(recipe: GrpoRecipe, learning: float, iterations: int = 60, pause: float = 0.0) -> dict[str, float]:
    """Behind the first ten iterations: sessions at play, steps/s, the trainer's waiting, groups and their staleness."""
    recipe = replace(
        recipe, rollout=replace(recipe.rollout, shares={}), groups=replace(recipe.groups, replay=0), updates=1
    )
    sessions, ledger = Sessions(recipe.rollout.sessions), Ledger()
    collector = Collector(recipe, BanditSuite(), PARTS, sessions, ledger, _stored)  # type: ignore[arg-type]
    waited, kept, stale, old, began = 0.0, 0, 0, list[int](), (0.0, 0.0, 0)
    for iteration in range(iterations):
        if iteration == 10:
            waited, kept, stale, old, began = 0.0, 0, 0, [], (sessions.now, sessions.busy, sessions.steps)
        before = sessions.now
        found = collector.collect()
        waited, kept, stale = waited + sessions.now - before, kept + len(found.groups), stale + found.stale
        old += found.staleness
        ledger.version += 1
        sessions.now += learning
        sessions.pause(pause)
    seconds = sessions.now - began[0]
    return {
        "sessions_at_play": (sessions.busy - began[1]) / seconds / sessions.count,
        "steps_per_second": (sessions.steps - began[2]) / seconds,
        "trainer_waits": waited / seconds,
        "kept": kept / (iterations - 10),
        "stale": stale / (iterations - 10),
        "staleness": sum(old) / len(old),
        "most_staleness": max(old),
    }


def _stored(episode: str) -> EpisodeInfo:
    raise AssertionError(f"{episode} is not stored")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.train.rl.in_play", description=__doc__)
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of the recipe")
    parser.add_argument("--learning", type=float, nargs="+", default=[6.0, 2.5, 1.5], metavar="SECONDS")
    parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS")
    given = parser.parse_args()
    for seconds in given.learning:
        told = simulate(read_grpo_recipe(given.recipe, given.set), seconds, pause=given.pause)
        print(f"{seconds} s:", ", ".join(f"{name} {value:.2f}" for name, value in told.items()), flush=True)


if __name__ == "__main__":
    main()
