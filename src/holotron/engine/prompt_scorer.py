"""Log-probabilities of prompts: what the model would have given each of their tokens."""

from __future__ import annotations

from torch import Tensor

from holotron.engine.requests import GenerationRequest, TokenLogprobs


class PromptScorer:
    """Takes the logits after tokens of a request's session, from a position on, and notes those of the next tokens."""

    def __init__(self, request: GenerationRequest) -> None:
        assert request.sampling is not None
        self._request = request
        self._top = request.sampling.prompt_logprobs or 0
        self._position = request.session.computed

    def __call__(self, logits_NV: Tensor) -> None:
        tokens, known = self._request.session.tokens, self._request.prompt_logprobs
        first = self._position + 1
        self._position += len(logits_NV)
        next_ids = tokens[first : min(self._position + 1, self._request.prompt_end)]
        logprobs_NV = logits_NV[: len(next_ids)].float().log_softmax(-1)
        best, best_ids = (part.tolist() for part in logprobs_NV.topk(self._top)) if self._top else ([], [])
        for row, id_ in enumerate(next_ids):
            if id_ < logprobs_NV.shape[1]:  # the token of an image may lie beyond the vocabulary
                value = float(logprobs_NV[row, id_])
                top = tuple(zip(best_ids[row], best[row], strict=True)) if self._top else ()
                known[first + row] = TokenLogprobs(value, value, top)
