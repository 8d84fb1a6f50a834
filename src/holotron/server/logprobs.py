"""Log-probabilities as OpenAI clients read them."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holotron.engine.requests import TokenLogprobs
from holotron.model.text.tokenizer import Tokenizer

# What a token has that was never drawn: its grammar left no other.
CERTAIN = TokenLogprobs(0.0, 0.0)
LOWEST = -9999.0  # JSON has no infinity


@dataclass(frozen=True)
class TokenNames:
    """What tokens are called: by their text, a part of a character by its bytes; with `by_id` all as token_id:N."""

    tokenizer: Tokenizer
    by_id: bool = False

    def __call__(self, id_: int) -> str:
        if self.by_id:
            return f"token_id:{id_}"
        data = self.tokenizer.token_bytes(id_)
        try:
            return data.decode() if data else f"token_id:{id_}"
        except UnicodeDecodeError:
            return "".join(chr(byte) if byte < 128 else f"\\x{byte:02x}" for byte in data)


def chat_logprobs(
    name: TokenNames, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs | None]
) -> list[dict[str, Any]]:
    """One entry per token; `sampling_logprob` is under the distribution that it was really drawn from."""
    entries = []
    for id_, known in zip(token_ids, logprobs, strict=True):
        known = known or CERTAIN
        entry = _entry(name, id_, known.model)
        entry["top_logprobs"] = [_entry(name, other, logprob) for other, logprob in known.top]
        entry["sampling_logprob"] = max(LOWEST, known.sampling)
        entries.append(entry)
    return entries


@dataclass
class TextOffsets:
    """Where in a text each of its tokens begins. A token that only goes on with a character begins where that does."""

    tokenizer: Tokenizer
    letters: int = 0
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"), repr=False
    )

    def take(self, token_ids: Sequence[int]) -> list[int]:
        offsets = []
        for id_ in token_ids:
            offsets.append(self.letters)
            if not self.tokenizer.is_hidden(id_):
                self.letters += len(self._decoder.decode(self.tokenizer.token_bytes(id_)))
        return offsets


def completion_logprobs(
    name: TokenNames, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs | None], offsets: TextOffsets
) -> dict[str, Any]:
    """Lists of the same length. The token that was drawn is always among its alternatives."""
    known = [logprob or CERTAIN for logprob in logprobs]
    return {
        "tokens": [name(id_) for id_ in token_ids],
        "token_logprobs": [max(LOWEST, one.model) for one in known],
        "sampling_logprobs": [max(LOWEST, one.sampling) for one in known],
        "top_logprobs": [
            {name(other): max(LOWEST, logprob) for other, logprob in (*one.top, (id_, one.model))}
            for id_, one in zip(token_ids, known, strict=True)
        ],
        "text_offset": offsets.take(token_ids),
    }


def prompt_logprobs(
    name: TokenNames, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs | None]
) -> list[dict[str, Any] | None]:
    """As vLLM tells them: of each token its own and the best, by their ids; None where it was not predicted.

    The rank of a token that is not among the best is told as the next after them.
    """
    told: list[dict[str, Any] | None] = []
    for id_, known in zip(token_ids, logprobs, strict=True):
        if known is None:
            told.append(None)
            continue
        ranked = [(len(known.top) + 1, id_, known.model), *((i, *each) for i, each in enumerate(known.top, 1))]
        told.append(
            {
                str(other): {"logprob": max(LOWEST, logprob), "rank": rank, "decoded_token": name(other)}
                for rank, other, logprob in ranked
            }
        )
    return told


def _entry(name: TokenNames, id_: int, logprob: float) -> dict[str, Any]:
    return {"token": name(id_), "logprob": max(LOWEST, logprob), "bytes": list(name.tokenizer.token_bytes(id_))}
