"""The next tokens of many generations at once: sampled, bound to grammars, and turned into text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from holotron.engine.errors import GenerationFailed, GrammarFailed
from holotron.engine.grammar import GrammarError, GrammarState
from holotron.engine.requests import FinishEvent, GenerationRequest, TokenEvent, TokenLogprobs
from holotron.engine.sampling import EMPTY, ERRORS, PlainDraw, RowState, SampledToken, sample, sample_plainly
from holotron.engine.stopping import StopChecker
from holotron.model.config import ModelConfig
from holotron.model.text.tokenizer import Tokenizer


class SampledStep(NamedTuple):
    """What one generation gained in a step: a token that was drawn, those forced after it, or an error."""

    token_ids: tuple[int, ...] = ()
    text: str = ""
    logprobs: TokenLogprobs | None = None
    finish: FinishEvent | None = None
    error: Exception | None = None

    def event(self, epoch: int) -> TokenEvent:
        return TokenEvent(self.token_ids, self.text, self.logprobs, epoch)


class TokenSampler:
    """Draws tokens for requests and follows each of them to its end."""

    def __init__(self, config: ModelConfig, tokenizer: Tokenizer | None = None) -> None:
        self._config = config
        # Without a tokenizer there are only token ids.
        self._decode: Callable[[Sequence[int]], str] | None = tokenizer.decode if tokenizer else None
        # Markup of images means something only in prompts; generated, it would stand for an image that is not there.
        vision = config.vision
        markup = (vision.image_token_id, vision.image_start_token_id, vision.image_end_token_id) if vision else ()
        banned = {token for token in markup if token is not None and token < config.vocab_size}
        if tokenizer is not None:  # nor does an id that is no token mean anything
            banned |= set(range(config.vocab_size)) - tokenizer.ids
        self.banned = torch.tensor(sorted(banned), dtype=torch.long)  # ids that are never drawn

    def begin(self, request: GenerationRequest, device: torch.device) -> None:
        """Prepare a request for drawing; parameters that this model cannot follow are an error here, before it runs."""
        if request.sampling is None:
            return
        config = self._config
        # The image token may lie beyond the vocabulary.
        prompt = [t for t in request.session.tokens if t < config.vocab_size] if request.sampling.has_penalties else ()
        request.row = RowState(request.sampling, config.vocab_size, request.seed, config.eos_token_ids, prompt, device)
        request.checker = StopChecker(request.sampling, self._decode, config.eos_token_ids)

    def draw(self, requests: Sequence[GenerationRequest], logits_SV: Tensor) -> list[SampledStep]:
        """The outcomes of one step, in order. An error of one generation is its own."""
        rows = [request.row for request in requests if request.row is not None]
        if all(row.is_plain for row in rows):
            return self.outcomes(requests, self.draw_plainly(logits_SV).read())
        logits_SV = logits_SV.float()
        bitmask, broken = self._bitmask(requests, logits_SV.device)
        tokens = sample(logits_SV, rows, bitmask, self._banned_on(logits_SV.device)).read(rows)
        return [
            SampledStep(error=broken[i]) if i in broken else self._outcome(request, row, token)
            for i, (request, row, token) in enumerate(zip(requests, rows, tokens, strict=True))
        ]

    def draw_plainly(self, logits_SV: Tensor) -> PlainDraw:
        """The next tokens of requests that are all plain, which are not waited for."""
        return sample_plainly(logits_SV.float(), self._banned_on(logits_SV.device))

    def outcomes(self, requests: Sequence[GenerationRequest], tokens: Sequence[SampledToken]) -> list[SampledStep]:
        """What plain requests gain by these tokens."""
        rows = [request.row for request in requests if request.row is not None]
        return [self._outcome(*each) for each in zip(requests, rows, tokens, strict=True)]

    def _banned_on(self, device: torch.device) -> Tensor:
        if self.banned.device != device:
            self.banned = self.banned.to(device)
        return self.banned

    def _bitmask(
        self, requests: Sequence[GenerationRequest], device: torch.device
    ) -> tuple[Tensor | None, dict[int, GrammarFailed]]:
        if all(request.grammar is None for request in requests):
            return None, {}
        words = -(-self._config.vocab_size // 32)
        # Pinned, so that nothing waits for its copy.
        bitmask = torch.zeros(len(requests), words, dtype=torch.int32, pin_memory=device.type == "cuda")
        broken: dict[int, GrammarFailed] = {}
        for index, (row, request) in enumerate(zip(bitmask.unbind(), requests, strict=True)):
            if request.grammar is not None:
                try:
                    request.grammar.mask_into(row)
                except GrammarError as error:
                    broken[index] = GrammarFailed(str(error))
        return bitmask, broken

    def _outcome(self, request: GenerationRequest, row: RowState, token: SampledToken) -> SampledStep:
        if token.error is not None:
            by_grammar = request.grammar is not None and token.error == ERRORS[EMPTY]
            return SampledStep(error=(GrammarFailed if by_grammar else GenerationFailed)(token.error))
        checker = request.checker
        assert checker is not None
        ids: tuple[int, ...] = (token.token_id,)
        if request.grammar is None:
            text = checker.push(token.token_id)
        else:
            try:
                ids = _follow(request.grammar, token.token_id)
            except GrammarError as error:
                return SampledStep(error=GrammarFailed(str(error)))
            ids, text = _push_all(checker, ids)
        finish = FinishEvent(checker.finish.reason, stop=checker.finish.stop) if checker.finish else None
        if finish is None and request.grammar is not None and request.grammar.is_finished:
            finish = FinishEvent("stop", text=checker.flush())
        row.advance(ids)
        logprobs = None
        if token.logprob is not None:
            logprobs = TokenLogprobs(token.logprob, token.sampling_logprob, token.top)
        return SampledStep(ids, text, logprobs, finish)


def _follow(grammar: GrammarState, token_id: int) -> tuple[int, ...]:
    """Take the token, and with it all that the grammar then leaves no choice about."""
    grammar.advance(token_id)
    forced = grammar.forced()
    for forced_id in forced:
        grammar.advance(forced_id)
    return (token_id, *forced)


def _push_all(checker: StopChecker, ids: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
    """The text of the tokens up to where the generation ends, and those tokens."""
    text = ""
    for position, token_id in enumerate(ids):
        text += checker.push(token_id)
        if checker.finish is not None:
            return ids[: position + 1], text
    return ids, text
