"""From tokens to text: what has been said so far, and where a generation ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from holotron.engine.sampling_params import SamplingParams

# A window of the last tokens is decoded, never the whole output. Bytes that a cut tears apart show up wrong at its
# start only, and an unfinished character has at most three bytes: this many tokens are more than enough context.
CONTEXT_TOKENS = 16
REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class Finish:
    """Why a generation ended; `stop` is the text or the token id that ended it."""

    reason: Literal["stop", "length", "eos"]
    stop: str | int | None = None


class StopChecker:
    """Turns tokens into text as they come, and says when the generation ends.

    Text that may still become part of a stop text or of an unfinished character is held back. Without a way to decode
    there is no text, and stop texts are never found.
    """

    def __init__(
        self, params: SamplingParams, decode: Callable[[Sequence[int]], str] | None, eos_ids: Sequence[int] = ()
    ) -> None:
        self.finish: Finish | None = None
        self._params = params
        self._decode = decode
        self._eos_ids = frozenset() if params.ignore_eos else frozenset(eos_ids)
        self._stop_ids = frozenset(params.stop_token_ids)
        self._beginnings = frozenset(text[:end] for text in params.stop for end in range(1, len(text)))
        self._longest = max(map(len, params.stop), default=0)
        self._count = 0
        self._window: list[int] = []
        self._window_text = ""
        self._read = 0  # how much of the window's text has been taken
        self._pending = ""  # taken, and not yet given out

    def push(self, token_id: int) -> str:
        """The text that this token completes. After the last one, `finish` is set and nothing is held back."""
        if self.finish is not None:
            raise ValueError(f"the generation has ended ({self.finish.reason}); the token {token_id} comes too late")
        self._count += 1
        if token_id in self._eos_ids:
            return self._end(Finish("eos"))
        if token_id in self._stop_ids:
            return self._end(Finish("stop", token_id))
        text = self._search(self._take(token_id)) if self._decode is not None else ""
        if self.finish is None and self._count >= self._params.max_tokens:
            text += self._end(Finish("length"))
        return text

    def flush(self) -> str:
        """What is still held back, for a generation that is ended from outside."""
        rest, self._pending = self._pending + self._window_text[self._read :], ""
        self._read = len(self._window_text)
        return rest

    def _take(self, token_id: int) -> str:
        assert self._decode is not None
        self._window.append(token_id)
        text = self._decode(self._window)
        if text == self._window_text and not self._decode([token_id]):
            self._window.pop()  # a token without text gives no context
            return ""
        final = _final_length(text)
        new = text[self._read : final]
        self._window_text, self._read = text, max(self._read, final)
        if len(self._window) >= 2 * CONTEXT_TOKENS:
            self._window = self._window[-CONTEXT_TOKENS:]
            self._window_text = self._decode(self._window)
            self._read = _final_length(self._window_text)
        return new

    def _search(self, new: str, at_end: bool = False) -> str:
        """The text that can be given out, up to the stop text that is complete first."""
        self._pending += new
        stops = self._params.stop if self._count >= self._params.min_tokens else ()
        found = [(start + len(stop), start, stop) for stop in stops if (start := self._pending.find(stop)) >= 0]
        if found:
            _, start, stop = min(found)
            text, self._pending = self._pending[:start], ""
            self._read = len(self._window_text)
            self.finish = Finish("stop", stop)
            return text
        keep = len(self._pending)
        if stops and not at_end:
            starts = range(max(0, keep - self._longest + 1), keep)
            keep = next((start for start in starts if self._pending[start:] in self._beginnings), keep)
        text, self._pending = self._pending[:keep], self._pending[keep:]
        return text

    def _end(self, finish: Finish) -> str:
        text = self._search(self._window_text[self._read :], at_end=True)
        self._read = len(self._window_text)
        self.finish = self.finish or finish
        return text


def _final_length(text: str) -> int:
    """How much of a text no further byte can change: an unfinished character shows as one to three U+FFFD."""
    end = len(text)
    while end > max(0, len(text) - 3) and text[end - 1] == REPLACEMENT:
        end -= 1
    return end
