"""How much memory an engine has and how it divides its time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from holotron.engine.errors import EngineError
from holotron.engine.pace import SchedulerConfig
from holotron.model.config import ModelConfig


@dataclass(frozen=True)
class EngineConfig(SchedulerConfig):
    """Sizes of the pools and budgets of a step.

    slots: sessions whose state fits on the device, checkpoints counted. pages: pages of keys and values.
    reads_late: a step that only decodes begins before the last one's tokens are read, where the device works beside the
    host. Off: on one GPU run a CUDA error was logged beside it (and recovered from). What may have caused it is mended
    (graphs recorded beside unread tokens, an empty tensor pinned), but not run there since; a step that fails beside
    unread tokens turns it off.
    checkpoints: states kept per session at the starts and ends of its latest prompts, so that going back is free; one
    more while a slot is free. With 1 that is both ends of the last prompt.
    """

    slots: int = 64
    pages: int = 1024
    page_size: int = 64
    reads_late: bool = False
    max_context: int = 65536
    checkpoints: int = 1
    state_dtype: torch.dtype = torch.float32
    kv_dtype: torch.dtype | None = None
    host_bytes: int = 4 * 2**30
    disk_bytes: int = 0
    disk_folder: Path | None = None
    image_cache_bytes: int = 256 * 2**20
    cuda_graphs: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("slots", "pages", "page_size", "prefill_tokens", "max_running", "max_context"):
            if getattr(self, name) < 1:
                raise EngineError(f"EngineConfig.{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("prefill_every", "checkpoints", "host_bytes", "disk_bytes", "image_cache_bytes"):
            if getattr(self, name) < 0:
                raise EngineError(f"EngineConfig.{name} is {getattr(self, name)}; it must not be negative")
        if self.disk_bytes and self.disk_folder is None:
            raise EngineError("EngineConfig.disk_bytes needs a disk_folder to put the sessions in")

    @property
    def pages_per_session(self) -> int:
        return -(-self.max_context // self.page_size)


def fit_to_memory(
    model: ModelConfig,
    free_bytes: int,
    *,
    tokens_per_session: int,
    sessions: int | None = None,
    dtype: torch.dtype = torch.bfloat16,
    **given: object,
) -> EngineConfig:
    """An EngineConfig that divides `free_bytes` between states and pages for sessions of about that many tokens.

    With `sessions` it takes no more than so many sessions could ever use, and what states leave free goes to pages.
    """
    draft = EngineConfig(**given)  # type: ignore[arg-type]
    kv_bytes = (draft.kv_dtype or dtype).itemsize * model.kv_values_per_token
    state_bytes = draft.state_dtype.itemsize * model.ssm_values + dtype.itemsize * model.conv_values
    session_bytes = kv_bytes * tokens_per_session + state_bytes * (1 + draft.checkpoints)
    fitting = free_bytes // session_bytes
    if fitting < 1:
        raise EngineError(
            f"{free_bytes / 2**30:.1f} GiB do not hold one session of {tokens_per_session} tokens "
            f"({session_bytes / 2**30:.1f} GiB); use fewer tokens, an 8-bit KV or a larger device"
        )
    held = fitting if sessions is None else min(fitting, sessions)
    # One slot and one page beyond what sessions use are scratch for padded rows.
    slots = held * (1 + draft.checkpoints) + 1
    pages = (free_bytes - slots * state_bytes) // max(kv_bytes * draft.page_size, 1) if kv_bytes else 1
    if held < fitting:
        pages = min(pages, held * draft.pages_per_session + 1)
    return EngineConfig(**{**given, "slots": slots, "pages": max(int(pages), 2)})  # type: ignore[arg-type]
