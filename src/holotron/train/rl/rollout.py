"""Where attempts of a recipe are played: its suite, its policy format, and its engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from holotron.agent.agent import Budget
from holotron.agent.chat import ChatModel
from holotron.agent.in_process import loaded, serving
from holotron.agent.model_processes import ModelProcesses
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
from holotron.train.rl.engine_here import EngineHere
from holotron.train.rl.engines_beside import EnginesBeside
from holotron.train.rl.engines_there import EnginesThere
from holotron.train.rl.groups import RolloutGroup
from holotron.train.rl.ledger import Ledger
from holotron.train.rl.weight_sync import POLICY, served_model, shares_base

Engines = EngineHere | EnginesBeside | EnginesThere  # all are asked alike
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
        chosen = config.tasks or allowed
        for name in config.shares:
            if not any(task.startswith(f"{name}/") for task in chosen):
                raise SuiteError(f"{name} has a share, and none of its tasks is named")
        return chosen

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

    @contextmanager
    def engines(self, learner: Learner, out: Path) -> Iterator[Engines]:
        """What attempts are played against: servers that the recipe names, copies beside, or an engine in this process.

        They have the checkpoint that the run started from until the trainer sends; one in this process has, with LoRA,
        the trainer's own weights.
        """
        config = self.config
        style = self.policy_format.options(config.max_tokens, config.temperature)
        if config.engines:
            yield EnginesThere(self.recipe, learner, style, out)
            return
        how: dict[str, Any] = {
            "memory": int(config.memory_gib * 2**30),
            "tokens_per_session": config.tokens_per_session,
            "on_update": config.on_update,
            "group": self.recipe.groups.size,
        }
        # As the learner computes: probabilities of the two are compared.
        copy = partial(loaded, self.recipe.starting_point, learner.device, style=style, bf16_products=False)
        if config.copies:
            how["memory"] //= config.copies
            with ModelProcesses(config.copies, self.recipe.start, partial(copy, **how)) as copies:
                yield EnginesBeside(copies)
            return
        shared = shares_base(learner)
        with (
            serving(served_model(learner), learner.writer, style, adapter=POLICY, **how) if shared else copy(**how)
        ) as model:
            yield EngineHere(model)

    def playing(self, model: ChatModel) -> LivePlay:
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
        drop: Callable[[int], None] = lambda _: None,
        ranks: Ranks = Ranks(),
    ) -> Collector:
        return Collector(self.recipe, self.suite, self.tasks, play, ledger, self.store.info, stopped, keep, drop, ranks)
