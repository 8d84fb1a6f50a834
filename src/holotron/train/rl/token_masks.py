"""Which tokens could be drawn at each place of an answer: those its grammar allowed, less those that never are.

A log-probability is one under the distribution a token was drawn from only over these. They follow from the form of an
answer and its tokens, so episodes do not store them.

Shapes: N drawn tokens, W words of 32 tokens each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holotron.engine.grammar import Grammar, GrammarCompiler
from holotron.model.config import ModelConfig
from holotron.model.text.tokenizer import Tokenizer

MOST_KEPT_BYTES = 256 * 2**20


class TokenMasks:
    """Masks for one vocabulary, kept by what stood before: answers of one form begin alike."""

    def __init__(self, tokenizer: Tokenizer, config: ModelConfig, banned: Sequence[int]) -> None:
        self._tokenizer, self._config = tokenizer, config
        self._words = -(-config.vocab_size // 32)
        bits = np.zeros(self._words * 32, np.bool_)
        bits[: config.vocab_size] = True
        bits[list(banned)] = False
        self._any = _packed(bits)
        self._compiler: GrammarCompiler | None = None
        self._kept: dict[tuple[str, tuple[int, ...]], NDArray[np.int32]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Another process compiles and keeps its own."""
        return vars(self) | {"_compiler": None, "_kept": {}}

    def drawn_from(
        self, schema: Mapping[str, Any] | None, token_ids: Sequence[int], forced: Sequence[bool]
    ) -> NDArray[np.int32]:
        """[N, W] of the tokens of an answer that were not forced. schema: the answer's form, None for any text."""
        drawn = [place for place, was_forced in enumerate(forced) if not was_forced]
        if schema is None:
            return np.tile(self._any, (len(drawn), 1))
        form = json.dumps(schema)
        wanted = [(form, tuple(token_ids[:place])) for place in drawn]
        if not all(key in self._kept for key in wanted):
            self._compute(schema, form, token_ids, set(drawn))
        return np.stack([self._kept[key] for key in wanted]) if wanted else np.zeros((0, self._words), np.int32)

    def _compute(self, schema: Mapping[str, Any], form: str, token_ids: Sequence[int], drawn: set[int]) -> None:
        if len(self._kept) * self._words * 4 > MOST_KEPT_BYTES:
            self._kept.clear()
        if self._compiler is None:
            config = self._config
            self._compiler = GrammarCompiler(self._tokenizer, config.vocab_size, config.eos_token_ids)
        lark = schema.get("lark")
        state = self._compiler.compile(Grammar("json_schema", form) if lark is None else Grammar("lark", lark))
        row = torch.zeros(self._words, dtype=torch.int32)
        for place, token in enumerate(token_ids):
            if place in drawn:
                state.mask_into(row)
                self._kept[form, tuple(token_ids[:place])] = row.numpy() & self._any
            state.advance(token)


def _packed(bits: NDArray[np.bool_]) -> NDArray[np.int32]:
    return np.packbits(bits, bitorder="little").view(np.int32)


def unpacked(words_NW: Tensor, vocab_size: int) -> Tensor:
    """The masks as booleans [N, vocabulary]."""
    shifts = torch.arange(32, dtype=torch.int32, device=words_NW.device)
    return ((words_NW[:, :, None] >> shifts) & 1).flatten(1)[:, :vocab_size].bool()
