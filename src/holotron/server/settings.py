"""What the server allows: keys, limits and times."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_network

from holotron.engine.options import EngineOptions

MIB = 2**20
LOGPROBS_MODES = ("raw_logprobs", "processed_logprobs")
LOOPBACK = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class ServerSettings:
    """Everything about the server but the model. Nothing is open to the network, or without a limit, by default.

    max_queue: turns that may be under way at once, over all keys; more are told to come back later.
    kept_seconds, kept_most: how long, and how many, sessions of requests without one wait for a request that goes on.
    image_hosts: hosts whose images are fetched by URL, such as "images.example.com" or "*.example.com"; empty: none.
    trainers: addresses and networks whose requests count as the operator's, without a key: for trainers that send none.
    logprobs_mode: raw_logprobs or processed_logprobs, as vLLM calls them: the model's own, or those of the draw.
    transfer_seconds: that a trainer may take to join a group, and to send the next tensor over it.
    allowed_hosts: names besides loopback's that requests may be for; "*" is any. log_format: json or text.
    strict: unknown fields of requests are errors.
    episodes: a folder of episodes that is shown at /view/, on this machine only.
    policy_format: how clients are told to ask the model, in place of what its checkpoint says.
    """

    engine: EngineOptions = field(default_factory=EngineOptions)
    served_name: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    admin_key: str | None = None
    max_body_bytes: int = 64 * MIB
    max_image_bytes: int = 20 * MIB
    max_image_pixels: int = 64_000_000
    max_images: int = 64
    max_choices: int = 64
    max_queue: int = 1024
    max_per_key: int = 512
    max_sessions_per_key: int = 4096
    request_seconds: float = 600.0
    session_seconds: float = 3600.0
    grace_seconds: float = 30.0
    kept_seconds: float = 600.0
    kept_most: int = 1024
    image_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    strict: bool = False
    episodes: str | None = None
    policy_format: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    trainers: tuple[str, ...] = ()
    transfer_seconds: float = 300.0
    logprobs_mode: str = "raw_logprobs"
    log_format: str = "json"

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_image_bytes", "max_choices", "max_queue", "max_per_key"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.logprobs_mode not in LOGPROBS_MODES:
            raise ValueError(f"logprobs_mode is {self.logprobs_mode!r}; it must be one of {', '.join(LOGPROBS_MODES)}")
        for network in self.trainers:
            ip_network(network)
        for name in ("request_seconds", "session_seconds", "transfer_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be more than 0")
        for name, _ in self.engine.adapters:
            self.check_adapter(name)
        if any(not key.strip() for key in self.api_keys) or self.admin_key == "":
            raise ValueError("an API key is empty; leave it out to serve without one")

        if self.episodes is not None and (self.api_keys or self.host not in LOOPBACK):
            raise ValueError("episodes are shown without a key, and so only on loopback, by a server without keys")

    def check_adapter(self, name: str) -> None:
        """ValueError where an adapter cannot be called so."""
        if not name.strip() or name in (self.model_name, self.engine.model):
            raise ValueError(f"an adapter cannot be called {name!r}: clients could not tell it from the model")

    @property
    def model_name(self) -> str:
        return self.served_name or self.engine.model
