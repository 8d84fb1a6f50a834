"""A session as the engine's loop sees it: its tokens, and where its memory is."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from holotron.engine.images import ImageSpan
    from holotron.engine.offload import Arrival, OffloadedSession
    from holotron.engine.requests import GenerationRequest


class Residency(StrEnum):
    """Where the memory of a session is; with `none` it is computed again when it is needed."""

    GPU = "gpu"
    HOST = "host"
    DISK = "disk"
    NONE = "none"


class OnUpdate(StrEnum):
    """What happens to a session when the weights change."""

    KEEP = "keep"
    RECOMPUTE = "recompute"
    DROP = "drop"


@dataclass(frozen=True)
class Turn:
    """One append and one generation: tokens start … prompt_end are given, prompt_end … end are generated."""

    start: int
    prompt_end: int
    end: int


@dataclass(frozen=True)
class Checkpoint:
    """The state after the first `position` tokens, in a slot of its own, and the logits there if they are known."""

    position: int
    slot: int
    logits: Tensor | None


@dataclass(frozen=True)
class OffloadedCheckpoint:
    """A checkpoint whose state is away from the device."""

    position: int
    offloaded: OffloadedSession
    logits: Tensor | None


_numbers = count()


@dataclass(eq=False)
class SessionState:
    """Tokens, memory and turns of one session. `computed` of its tokens are in its memory; the rest wait to be."""

    id: str
    on_update: OnUpdate = OnUpdate.KEEP
    keep_images: int | None = None
    adapter: int = 0  # the number of its LoRA adapter, 0 for none: what it remembers is that adapter's work
    pool: str | None = None  # requests without a session of their own may go on from sessions of their pool
    tokens: array[int] = field(default_factory=lambda: array("i"))
    images: list[ImageSpan] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    computed: int = 0
    slot: int | None = None
    pages: list[int] = field(default_factory=list)
    dropped: int = 0  # entries of old screenshots whose pages were given back
    dropped_before: int = 0  # going back to before this token would need what was dropped
    logits: Tensor | None = None  # after the last computed token, when it is the last token
    checkpoints: list[Checkpoint] = field(default_factory=list)
    digests: dict[int, bytes] = field(default_factory=dict)
    offloaded: OffloadedSession | None = None
    offloaded_checkpoints: list[OffloadedCheckpoint] = field(default_factory=list)  # of a session that moved
    arrival: Arrival | None = None  # its memory is on its way back
    epoch: int = 0  # of the weights that computed the beginning of its memory
    request: GenerationRequest | None = None
    waits_for: SessionState | None = None  # a fork whose parent is still being computed
    claimed: bool = False  # promised to a stateless request that has not come back with its tokens yet
    last_used: int = 0
    left_at: float | None = None  # of a pool: when its last request was done
    closed: bool = False
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def uncomputed(self) -> int:
        return len(self.tokens) - self.computed

    @property
    def held(self) -> int:
        """The tokens that need not be computed again.

        The last tokens of an answer count: they are computed with what follows them, for the first time.
        """
        return len(self.tokens) if self.turns and self.computed >= self.turns[-1].prompt_end else self.computed

    @property
    def entries(self) -> int:
        """Keys and values in the pages."""
        return self.computed - self.dropped

    @property
    def position(self) -> int:
        """Of the next token to compute, in text: its number, moved by the images before it (model/mrope.py)."""
        shift = next((span.shift for span in reversed(self.images) if span.end <= self.computed), 0)
        return self.computed + shift

    @property
    def residency(self) -> Residency:
        if self.slot is not None:
            return Residency.GPU
        if self.offloaded is not None:
            return Residency.DISK if self.offloaded.on_disk else Residency.HOST
        return Residency.NONE

    def digest(self, position: int) -> bytes:
        """Fingerprint of the first `position` tokens and the images among them; hashed once."""
        if position not in self.digests:
            state = blake2b(memoryview(self.tokens)[:position], digest_size=16)
            for span in self.images:
                if span.start < position:
                    state.update(span.key)
            self.digests[position] = state.digest()
        return self.digests[position]

    def truncate(self, position: int) -> None:
        """Remove the tokens from `position` on, their images and fingerprints."""
        del self.tokens[position:]
        self.images = [span for span in self.images if span.start < position]
        self.digests = {at: digest for at, digest in self.digests.items() if at <= position}

    def logits_at(self, position: int) -> Tensor | None:
        """The logits after the first `position` tokens, if they are known."""
        if position == self.computed and self.logits is not None:
            return self.logits
        return next((c.logits for c in self.checkpoints if c.position == position), None)

    def resume_positions(self, has_state: bool = True) -> list[int]:
        """From where this session could go on without computing anything again.

        Without a state that is anywhere in its keys and values: before the ends of its prompts, among other places.
        """
        positions = [self.computed, *(c.position for c in self.checkpoints)]
        if not has_state and self.slot is not None:
            ends = (end for turn in self.turns for end in (turn.start, turn.prompt_end - 1))
            positions += [end for end in ends if self.dropped_before <= end < self.computed]
        return [p for p in positions if not any(span.start < p < span.end for span in self.images)]
