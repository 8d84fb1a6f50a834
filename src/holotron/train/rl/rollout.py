"""Where attempts of a recipe are played: its suite, its policy format, and an engine in this very process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from holotron.agent.agent import Budget
from holotron.agent.in_process import EngineModel, loaded, serving
from holotron.agent.open_model import resolve_format
from holotron.agent.policy_format import NANO, PolicyFormat, find_format
from holotron.episodes.record import PolicyInfo
from holotron.episodes.store import EpisodeStore
from holotron.suites.live_play import LivePlay
from holotron.suites.mixed import MixedSuite
from holotron.suites.play import Play
from holotron.suites.suite import TRAINING_SEEDS, Suite, SuiteError, find_suite
from holotron.train.learner import Learner
from holotron.train.parallel import Ranks
from holotron.train.rl.collector import Collector
from holotron.train.rl.config import GrpoRecipe
from holotron.train.rl.groups import RolloutGroup
from holotron.train.rl.ledger import Ledger
from holotron.train.rl.weight_sync import POLICY, served_model, shares_base

OpenLive = Callable[..., LivePlay]  # with the arguments of LivePlay


class Rollout:
    """What a recipe's [rollout] asks for. SuiteError, ValueError: there is no such suite, task or format.

    suite: one that is not known by its name. live: in place of LivePlay, such as hosts on other
    machines.
    """

    def __init__(
        self, recipe: GrpoRecipe, folder: Path, suite: Suite[Any] | None = None, live: OpenLive | None = None
    ) -> None:
        config = recipe.rollout
        self.recipe, self.config, self.live = recipe, config, live or LivePlay
        self.suite = suite or find_suite(config.suite, Path(config.root) if config.root else None)
        self.tasks = self._tasks()
        self.policy_format = self._format()
        self.formats = self._formats()
        self.store = EpisodeStore(folder)

    def _tasks(self) -> tuple[str, ...]:
        suite, config = self.suite, self.config
        if config.first_seed not in TRAINING_SEEDS:
            raise SuiteError(f"first_seed {config.first_seed} is held out; training seeds end at {TRAINING_SEEDS[-1]}")
        allowed = suite.part(config.split or suite.training_split)
        for name in config.tasks:
            if name not in suite.names():
                raise suite.unknown(name)
            if name not in allowed:
                raise SuiteError(f"{name} is held out for evaluation; name its split if that is what it is for")
        return config.tasks or allowed

    def _format(self) -> PolicyFormat:
        config, recipe = self.config, self.recipe
        own = None if recipe.random else resolve_format(recipe.starting_point, None, None)
        found = find_format(config.format) if config.format else own or NANO
        return found.with_kinds(config.kinds or self.suite.kinds)

    def _formats(self) -> dict[str, PolicyFormat]:
        """Of several suites, each one's: with the actions that make sense there."""
        if self.config.kinds or not isinstance(self.suite, MixedSuite):
            return {}
        return {name: self.policy_format.with_kinds(suite.kinds) for name, suite in self.suite.members.items()}

    def engine(self, learner: Learner) -> AbstractContextManager[EngineModel]:
        """The policy as the checkpoint has it that the run started from; the trainer sends what it learned.

        With LoRA the weights are the trainer's own, in the same memory.
        """
        config = self.config
        style = self.policy_format.options(config.max_tokens, config.temperature)
        how: dict[str, Any] = {
            "memory": int(config.memory_gib * 2**30),
            "tokens_per_session": config.tokens_per_session,
            "on_update": config.on_update,
            "group": self.recipe.groups.size,
        }
        if shares_base(learner):
            return serving(served_model(learner), learner.writer, style, adapter=POLICY, **how)
        # As the learner computes: probabilities of the two are compared.
        return loaded(self.recipe.starting_point, learner.device, style=style, bf16_products=False, **how)

    def playing(self, model: EngineModel) -> LivePlay:
        config = self.config
        policy = PolicyInfo(
            model=self.recipe.start,
            sampling={"temperature": config.temperature},
            extra={"format": self.policy_format.spec, "recipe": self.recipe.name},
        )
        budget = Budget(steps=config.steps or self.suite.max_steps, seconds=config.seconds)
        how = Play(
            self.suite,
            self.store.folder,
            policy,
            self.policy_format,
            budget,
            self.suite.rule,
            seed=self.recipe.seed,
            formats=self.formats,
        )
        return self.live(how, model, sessions=config.sessions, browsers=config.browsers, workers=config.workers)

    def collector(
        self,
        play: LivePlay,
        ledger: Ledger,
        stopped: Callable[[], bool],
        keep: Callable[[RolloutGroup], None] = lambda _: None,
        ranks: Ranks = Ranks(),
    ) -> Collector:
        return Collector(self.recipe, self.suite, self.tasks, play, ledger, self.store.info, stopped, keep, ranks)
