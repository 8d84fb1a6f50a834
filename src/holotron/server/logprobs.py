"""Log-probabilities as OpenAI clients read them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from holotron.engine.requests import TokenLogprobs
from holotron.model.text.tokenizer import Tokenizer

# What a token has that was never drawn: its grammar left no other.
CERTAIN = TokenLogprobs(0.0, 0.0)
LOWEST = -9999.0  # JSON has no infinity


def token_text(tokenizer: Tokenizer, id_: int) -> str:
    """The token's text; one that is only a part of a character goes by its id."""
    text = tokenizer.decode([id_], skip_special=False)
    return text if text and "\ufffd" not in text else f"token_id:{id_}"


def chat_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs | None]
) -> list[dict[str, Any]]:
    """One entry per token; `sampling_logprob` is under the distribution that it was really drawn from."""
    entries = []
    for id_, known in zip(token_ids, logprobs, strict=True):
        known = known or CERTAIN
        entry = _entry(tokenizer, id_, known.model)
        entry["top_logprobs"] = [_entry(tokenizer, other, logprob) for other, logprob in known.top]
        entry["sampling_logprob"] = max(LOWEST, known.sampling)
        entries.append(entry)
    return entries


def completion_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs | None], offset: int = 0
) -> dict[str, Any]:
    texts = [token_text(tokenizer, id_) for id_ in token_ids]
    *offsets, _ = accumulate(map(len, texts), initial=offset)
    known = [logprob or CERTAIN for logprob in logprobs]
    return {
        "tokens": texts,
        "token_logprobs": [max(LOWEST, one.model) for one in known],
        "sampling_logprobs": [max(LOWEST, one.sampling) for one in known],
        "top_logprobs": [
            {token_text(tokenizer, id_): max(LOWEST, logprob) for id_, logprob in one.top} for one in known
        ],
        "text_offset": offsets,
    }


def _entry(tokenizer: Tokenizer, id_: int, logprob: float) -> dict[str, Any]:
    text = token_text(tokenizer, id_)
    return {"token": text, "logprob": max(LOWEST, logprob), "bytes": list(text.encode("utf-8", "replace"))}
