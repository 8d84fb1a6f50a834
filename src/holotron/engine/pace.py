"""How often prompts are taken up while sessions decode."""

from __future__ import annotations

MOST_STEPS = 8  # from one long prompt to the next: what a prompt of a whole step costs, in steps that only decode
REMEMBERED = 1000  # steps, about as many as agents need to come back
ANSWERS_REMEMBERED = 50


class Pace:
    """Prompts begin as often as answers end.

    Prompts that are taken up as they come bring the sessions behind them into step: they decode side by side, end
    together, think together and come back together, and the device has nothing to do in between. One session in
    `active` ends every `answer / active` steps, so a new one may begin as often. Where there is more to do than that,
    it is every step. Short prompts cost little beside decoding: they do not wait.
    """

    def __init__(self, prefill_tokens: int) -> None:
        self._prefill_tokens = prefill_tokens
        self._active = 0.0
        self._steps = 0
        self._answer: float | None = None
        self._prompt = 0.0

    def step(self, active: int, prompts: list[int]) -> None:
        """A step was planned with so many requests at hand and so many tokens of each prompt."""
        self._steps += 1  # at first it is the plain mean
        self._active += (active - self._active) / min(self._steps, REMEMBERED)
        for tokens in prompts:
            self._prompt += (tokens - self._prompt) / ANSWERS_REMEMBERED if self._prompt else tokens

    def ended(self, answer: int) -> None:
        """A request ended with so many tokens."""
        known = self._answer
        self._answer = answer if known is None else known + (answer - known) / ANSWERS_REMEMBERED

    @property
    def steps(self) -> int:
        """From one step with prompts to the next."""
        if self._answer is None:
            return 1
        most = MOST_STEPS * self._prompt / self._prefill_tokens
        return max(1, round(min(most, self._answer / max(1.0, self._active))))
