"""How one agent's browser is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holotron.env.safety.confirm import Confirmation
from holotron.env.safety.egress_proxy import Resolve, system_resolve
from holotron.env.safety.policy import SafetyPolicy
from holotron.env.safety.secrets import Login, Secrets


@dataclass(frozen=True)
class EnvOptions:
    """One browser context. Sizes are pixels, times are seconds.

    downloads: the folder files go to; None refuses them. accept_confirms, prompt_answer: how `confirm` and `prompt` are
    answered; without an answer a prompt is dismissed. settle_seconds: longest wait for the network after an action.
    change_seconds: longest wait for a page that keeps changing. call_seconds: when a page that does not answer is given
    up. resolve: how names become addresses. login: for servers of its secret's origins that ask by HTTP. stubbed:
    patterns of addresses, with * for any text, whose requests get an empty answer here, which nobody is told of.
    """

    width: int = 1280
    height: int = 800
    locale: str = "en-US"
    timezone: str = "UTC"
    safety: SafetyPolicy = field(default_factory=SafetyPolicy)
    secrets: Secrets = field(default_factory=Secrets)
    login: Login | None = None
    confirmation: Confirmation | None = None
    downloads: Path | None = None
    accept_confirms: bool = True
    prompt_answer: str | None = None
    settle_seconds: float = 5.0
    change_seconds: float = 1.0
    call_seconds: float = 15.0
    goto_seconds: float = 30.0
    longest_wait: float = 30.0
    most_tabs: int = 16
    resolve: Resolve = system_resolve
    stubbed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.login is not None and self.login.secret not in self.secrets:
            raise ValueError(f"EnvOptions.login needs the secret {self.login.secret!r}, which is not among the secrets")
        for name in ("width", "height", "most_tabs", "call_seconds", "goto_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"EnvOptions.{name} is {getattr(self, name)}; it must be more than 0")
        for name in ("settle_seconds", "change_seconds", "longest_wait"):
            if getattr(self, name) < 0:
                raise ValueError(f"EnvOptions.{name} is {getattr(self, name)}; it must not be negative")
