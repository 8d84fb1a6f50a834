"""How often prompts are taken up while sessions decode, and how much of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from holotron.engine.errors import EngineError

MOST_STEPS = (
    16  # from one long prompt to the next: twice what a prompt of a whole step costs, in steps that only decode
)
LULL = 60  # steps: prompts that might have begun in so many may begin in successive ones
REMEMBERED = 1000  # steps, about as many as agents need to come back
ANSWERS_REMEMBERED = 50
STEPS_REMEMBERED = 31
WAITING = 0.15  # of an answer's steps: how long prompts wait for each other where steps have a target
SMALLEST_PIECE = 256  # tokens of a prompt that is cut: in smaller ones a step has little but its weights to read


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """How an engine divides its time.

    prefill_tokens: most tokens of new prompts in one step, which bounds how long running sessions wait for a token.
    prefill_every: while sessions decode, prompts are taken up in every so manieth step. The steps between are decode
    only, which replay CUDA graphs: for a small model, whose steps cost more to launch than to compute, that is worth
    the wait. 0: as often as answers end, which keeps agents from falling into step.
    target_token_latency: seconds between two tokens of a session. Prompts are cut into pieces that leave it so, but
    into no more of them than there are steps until the next prompt is due: throughput is not given for it.
    target_step_latency: seconds from a usual prompt to the end of its answer. Prompts wait a little longer for each
    other, so that answers are done sooner once they are begun, and each may wait in proportion to its length: one whose
    time is up comes before one that came earlier and is longer.
    """

    prefill_tokens: int = 4096
    prefill_every: int = 1
    max_running: int = 256
    target_token_latency: float | None = None
    target_step_latency: float | None = None

    def __post_init__(self) -> None:
        for name in ("target_token_latency", "target_step_latency"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise EngineError(f"{name} is {value}; it must be above 0 seconds, or left out")


@dataclass
class Pace:
    """Prompts begin as often as answers end, and no more sessions decode than there usually are requests.

    Prompts that are taken up as they come bring the sessions behind them into step: they decode side by side, end
    together, think together and come back together, and the device has nothing to do in between. One session in
    `active` ends every `answer / active` steps, so a new one may begin as often, and some at once where fewer came for
    a while, until as many decode as there are requests on average: each more would hold up all of them. Where there is
    more to do than that, it is every step. Short prompts cost little beside decoding: they do not wait.
    """

    config: SchedulerConfig
    prompt: float = 0.0  # tokens of the mean prompt
    _active: float = 0.0
    _steps: int = 0
    _answer: float | None = None  # steps of the mean answer
    _ended: int = 0
    _decoded: int = 0  # tokens, by all sessions since an answer ended
    _unused: float = LULL  # steps in which prompts might have begun
    _decode_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_REMEMBERED))
    _token_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_REMEMBERED))

    def step(self, active: int, decoding: int, prompts: list[int]) -> None:
        """A step was planned: requests at hand, those of them that decode, and tokens of each prompt."""
        self._steps += 1  # at first it is the plain mean
        self._active += (active - self._active) / min(self._steps, REMEMBERED)
        self._decoded += decoding
        self._unused = min(max(LULL, self.steps), self._unused + 1)
        if prompts:
            self._unused = max(0.0, self._unused - self.steps * sum(prompts) / max(sum(prompts), self.prompt))

    def began(self, tokens: int) -> None:
        """A prompt of so many tokens is taken up."""
        self.prompt += (tokens - self.prompt) / ANSWERS_REMEMBERED if self.prompt else tokens

    def ended(self) -> None:
        """An answer ended.

        What all sessions decode between two ends is the mean answer. The lengths of those that end are not: at first
        they are the shortest.
        """
        self._ended += 1
        known = self._answer or 0.0
        self._answer = known + (self._decoded - known) / min(self._ended, ANSWERS_REMEMBERED)
        self._decoded = 0

    def took(self, seconds: float, prompt_tokens: int) -> None:
        """A step took so long."""
        if not prompt_tokens:
            self._decode_seconds.append(seconds)
        elif self._decode_seconds:
            self._token_seconds.append(max(0.0, seconds - median(self._decode_seconds)) / prompt_tokens)

    @property
    def steps(self) -> float:
        """From one step with prompts to the next."""
        if self._answer is None:
            return 1.0
        waiting = WAITING if self.config.target_step_latency else 0.0
        return max(1.0, min(self._most, self._answer * (1 + waiting) / max(1.0, self._active)))

    @property
    def _most(self) -> float:
        return MOST_STEPS * self.prompt / self.config.prefill_tokens

    def patience(self, tokens: int) -> float:
        """Seconds that a prompt of so many tokens may take: the target for a usual one."""
        return (self.config.target_step_latency or 0.0) * tokens / max(1.0, self.prompt)

    def allows(self, decoding: int, *, begun: bool) -> bool:
        """Whether the next step may take up a prompt while so many sessions decode, or go on with one."""
        if begun:
            return self._unused > 0
        is_crowded = decoding >= self._active and self._answer is not None and self.steps < self._most
        return self._unused >= self.steps and not is_crowded

    @property
    def budget(self) -> int:
        """Most tokens of prompts in the next step."""
        most, target = self.config.prefill_tokens, self.config.target_token_latency
        if target is None or not self._token_seconds:
            return most
        room = (target - median(self._decode_seconds)) / max(median(self._token_seconds), 1e-9)
        pieces = -(-max(room, self.prompt / self.steps) // SMALLEST_PIECE)
        return min(most, max(1, int(pieces)) * SMALLEST_PIECE)
