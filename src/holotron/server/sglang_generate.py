"""SGLang's /generate: a completion that is told with `meta_info`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from holotron.engine.requests import Event, TokenLogprobs
from holotron.model.errors import ModelError
from holotron.server.auth import Caller
from holotron.server.completions import CompletionAnswer, begin_completion, placed
from holotron.server.errors import blaming, renaming
from holotron.server.images import SentImage
from holotron.server.lengths import check_length
from holotron.server.logprobs import CERTAIN, LOWEST
from holotron.server.schemas import CompletionRequest
from holotron.server.sglang_schemas import OWN_NAMES, GenerateRequest
from holotron.server.state import ServerState
from holotron.server.streaming import DONE, sse
from holotron.server.translation import translated
from holotron.server.turns import ActiveTurn, Choice, Prompt

Logprob = tuple[float | None, int, str | None]


class SglangAnswer(CompletionAnswer):
    """One object for each answer, or a list of them. A stream's events each tell all that was said so far."""

    asked: GenerateRequest

    def ask(self, asked: GenerateRequest) -> SglangAnswer:
        self.asked = asked
        self._began = time.monotonic()
        self._turn_of = {choice.index: turn for turn in self.turns for choice in turn.choices}
        if asked.rid is not None:
            self.head["id"] = asked.rid
        return self

    def result(self) -> Any:
        told = [self._answer(choice) for choice in self.choices]
        return told if self.asked.is_batch else told[0]

    def opening(self) -> Iterator[bytes]:
        return iter(())

    def chunks(self, choice: Choice, event: Event) -> Iterator[bytes]:
        yield sse(self._answer(choice) | ({"index": choice.index} if self.asked.is_batch else {}))

    def closing(self) -> Iterator[bytes]:
        yield DONE

    def _answer(self, choice: Choice) -> dict[str, Any]:
        return {"text": self._text(choice), "output_ids": choice.token_ids, "meta_info": self._meta(choice)}

    def _text(self, choice: Choice) -> str:
        skip_special = self.asked.says("skip_special_tokens", True)
        if skip_special and not self.asked.says("no_stop_trim", False):
            return choice.text
        return self._state.texts.tokenizer.decode(choice.token_ids, skip_special=skip_special)

    def _meta(self, choice: Choice) -> dict[str, Any]:
        turn, version_of = self._turn_of[choice.index], self._state.client.version_of
        epoch = choice.epoch if choice.epochs else None
        meta: dict[str, Any] = {
            "id": self.head["id"],
            "finish_reason": _finish(choice),
            "prompt_tokens": turn.prompt_tokens,
            "completion_tokens": len(choice.token_ids),
            "cached_tokens": turn.cached_tokens,
            "weight_version": self._state.client.version if epoch is None else version_of(epoch),
            "weight_versions": [version_of(epoch) for epoch in choice.epochs],
            "e2e_latency": time.monotonic() - self._began,
        }
        if self.asked.return_logprob:
            known = [logprob or CERTAIN for logprob in choice.logprobs]
            # Of the distribution that was drawn from; a greedy answer is drawn from none, so that it is the model's.
            is_greedy = self.request.temperature == 0
            values = [one.model if is_greedy else one.sampling for one in known]
            meta["output_token_logprobs"] = [
                self._logprob(value, id_) for value, id_ in zip(values, choice.token_ids, strict=True)
            ]
            meta["output_top_logprobs"] = [self._best(one) for one in known] if self.asked.top_logprobs_num else []
            meta |= self._of_prompt(turn, choice)
        return meta

    def _of_prompt(self, turn: ActiveTurn, choice: Choice) -> dict[str, Any]:
        start, known = self.asked.logprob_start_len, choice.prompt_logprobs
        if start < 0 or known is None:
            return {"input_token_logprobs": []}
        ids = turn.prompt_ids[start:]
        values = [None if one is None else one.model for one in known[start:]]
        return {
            "input_token_logprobs": [self._logprob(value, id_) for value, id_ in zip(values, ids, strict=True)],
            "input_top_logprobs": [None if one is None else self._best(one) for one in known[start:]],
        }

    def _best(self, known: TokenLogprobs) -> list[Logprob]:
        return [self._logprob(value, id_) for id_, value in known.top]

    def _logprob(self, value: float | None, id_: int) -> Logprob:
        text = self._names(id_) if self.asked.return_text_in_logprobs else None
        return None if value is None else max(LOWEST, value), id_, text


def _finish(choice: Choice) -> dict[str, Any] | None:
    match choice.finish:
        case None:
            return None
        case "length":
            return {"type": "length", "length": len(choice.token_ids)}
        case "abort":
            return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
    last = choice.token_ids[-1] if choice.token_ids else None
    return {"type": "stop", "matched": last if choice.stop is None else choice.stop}


async def begin_generate(state: ServerState, body: GenerateRequest, caller: Caller) -> SglangAnswer:
    """From a request to turns that the engine has taken; refusals name the fields as SGLang does."""
    values = body.as_fields()
    fields = {name: f"sampling_params.{name}" for name in values.keys() & CompletionRequest.model_fields.keys()}
    fields |= {own: f"sampling_params.{name}" for name, own in OWN_NAMES.items()}
    fields |= {"prompt": "input_ids" if body.text is None else "text", "images": "image_data", "model": "lora_path"}
    with renaming(fields):
        request = translated(CompletionRequest, values, fields, state.settings.strict)
        answer = await begin_completion(state, request, caller, SglangAnswer, write_marked)
    assert isinstance(answer, SglangAnswer)
    answer.fields = fields
    return answer.ask(body)


def write_marked(state: ServerState, request: CompletionRequest, images: Sequence[SentImage]) -> list[Prompt]:
    """Prompts whose markup is markup. An image has one token in a text; among ids it has one, or all of its own."""
    texts = [prompt for prompt in request.prompts if isinstance(prompt, str)]
    check_length(state.texts.tokenizer, texts, state.max_context * max(1, len(texts)), "prompt")
    sizes, vision = [image.size for image in images], state.texts.config.vision
    prompts = []
    for prompt in request.prompts:
        if not isinstance(prompt, str) and not (vision and prompt.count(vision.image_token_id) == len(images)):
            prompts.append(Prompt(tuple(prompt), placed(vision, prompt, images)))
            continue
        with blaming("prompt", ModelError):
            writer = state.texts.prompts
            written = writer.encode(prompt, sizes) if isinstance(prompt, str) else writer.widen(prompt, sizes)
        prompts.append(Prompt(written.token_ids, list(zip(written.places, images, strict=True))))
    return prompts
