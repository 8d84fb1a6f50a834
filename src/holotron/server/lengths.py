"""Texts that cannot fit are refused before anything else is done with them."""

from __future__ import annotations

from collections.abc import Iterable

from holotron.model.text.tokenizer import Tokenizer
from holotron.server.errors import ApiError

PIECE = 64 * 1024
# Tokens that a text cut in two may have more than in one piece.
SLACK = 16

MOST_COUNTED = 2**18  # tokens that /tokenize tells; a session may have more


def check_length(tokenizer: Tokenizer, texts: Iterable[str], most: int, field: str) -> None:
    """Count as far as the most tokens a session can have; beyond, the work would be in vain."""
    texts = list(texts)
    if sum(map(len, texts)) <= PIECE:
        return
    counted = 0
    for text in texts:
        for start in range(0, len(text), PIECE):
            counted += max(0, tokenizer.count(text[start : start + PIECE]) - SLACK)
            if counted > most:
                raise too_long(field, most)


def too_long(field: str, most: int) -> ApiError:
    message = f"{field}: there are more tokens than the {most:,} that a session can have"
    return ApiError(400, message, param=field, code="context_length_exceeded")
