"""Holotron: a throughput-first stack for computer-use agents."""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all that Ctrl-C could come between
if TYPE_CHECKING:
    from typing import Any

    from holotron.agent.agent import Agent as Agent
    from holotron.agent.agent import Budget as Budget
    from holotron.agent.agent import Ending as Ending
    from holotron.agent.agent import StepRecord as StepRecord
    from holotron.agent.chat import ChatModel as ChatModel
    from holotron.agent.chat import ChatOptions as ChatOptions
    from holotron.agent.endpoint import EndpointModel as EndpointModel
    from holotron.agent.open_model import open_model as open_model
    from holotron.agent.policy_format import PolicyFormat as PolicyFormat
    from holotron.agent.stuck import StuckLimits as StuckLimits
    from holotron.engine.config import EngineConfig as EngineConfig
    from holotron.engine.engine import Engine as Engine
    from holotron.engine.sampling_params import SamplingParams as SamplingParams
    from holotron.env.browser.environment import BrowserEnv as BrowserEnv
    from holotron.env.browser.options import EnvOptions as EnvOptions
    from holotron.env.browser.pool import Browsers as Browsers
    from holotron.env.safety.confirm import Confirmation as Confirmation
    from holotron.env.safety.confirm import Question as Question
    from holotron.env.safety.policy import SafetyPolicy as SafetyPolicy
    from holotron.env.safety.secrets import Secret as Secret
    from holotron.env.safety.secrets import Secrets as Secrets
    from holotron.env.task import Task as Task
    from holotron.episodes.record import Episode as Episode
    from holotron.episodes.record import Step as Step
    from holotron.episodes.run import RunResult as RunResult
    from holotron.episodes.run import arun as arun
    from holotron.episodes.run import run as run
    from holotron.episodes.store import EpisodeStore as EpisodeStore
    from holotron.model.loading import load as load
    from holotron.suites.suite import Suite as Suite
    from holotron.suites.suite import find_suite as find_suite

# torch takes seconds to import, and most commands do not need it: the library is loaded when it is used.
_HOMES = {
    "agent.agent": ("Agent", "Budget", "Ending", "StepRecord"),
    "agent.chat": ("ChatModel", "ChatOptions"),
    "agent.endpoint": ("EndpointModel",),
    "agent.open_model": ("open_model",),
    "agent.policy_format": ("PolicyFormat",),
    "agent.stuck": ("StuckLimits",),
    "engine.config": ("EngineConfig",),
    "engine.engine": ("Engine",),
    "engine.sampling_params": ("SamplingParams",),
    "env.browser.environment": ("BrowserEnv",),
    "env.browser.options": ("EnvOptions",),
    "env.browser.pool": ("Browsers",),
    "env.safety.confirm": ("Confirmation", "Question"),
    "env.safety.policy": ("SafetyPolicy",),
    "env.safety.secrets": ("Secret", "Secrets"),
    "env.task": ("Task",),
    "episodes.record": ("Episode", "Step"),
    "episodes.run": ("RunResult", "arun", "run"),
    "episodes.store": ("EpisodeStore",),
    "model.loading": ("load",),
    "suites.suite": ("Suite", "find_suite"),
}
_HOME_OF = {name: f"holotron.{module}" for module, names in _HOMES.items() for name in names}
__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'holotron' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
