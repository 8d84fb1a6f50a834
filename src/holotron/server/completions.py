"""Completions: text or token ids in, text and token ids out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holotron.engine.grammar import GrammarError
from holotron.engine.requests import Event
from holotron.model.config import VisionConfig
from holotron.model.grids import image_tokens
from holotron.server.answer import TurnAnswer
from holotron.server.auth import Caller
from holotron.server.errors import blaming, field_error
from holotron.server.images import SentImage
from holotron.server.lengths import check_length
from holotron.server.logprobs import TextOffsets, TokenNames, completion_logprobs, prompt_logprobs
from holotron.server.schemas import CompletionRequest
from holotron.server.state import ServerState
from holotron.server.turns import ActiveTurn, Choice, Prompt, begin_turn

Writer = Callable[[ServerState, CompletionRequest, Sequence[SentImage]], list[Prompt]]


class CompletionAnswer(TurnAnswer[CompletionRequest]):
    """The answers to one or several prompts."""

    prefix = "cmpl"
    whole_object = chunk_object = "text_completion"

    def __init__(self, state: ServerState, request: CompletionRequest, turns: list[ActiveTurn]) -> None:
        super().__init__(state, request, turns)
        tokenizer = state.texts.tokenizer
        self._names = TokenNames(tokenizer, request.return_tokens_as_token_ids)
        self._offsets = [TextOffsets(tokenizer) for _ in self.choices]

        self._echoed: dict[int, Sequence[int]] = {}  # prompts whose log-probabilities are to be told
        self._heard = {choice.index: turn for turn in turns for choice in turn.choices}  # whose prompt is to be told

    def body(self, choice: Choice) -> dict[str, Any]:
        return self._with_prompt(choice, choice.text)

    def piece(self, choice: Choice, event: Event) -> dict[str, Any]:
        return self._with_prompt(choice, event.text)

    def _with_prompt(self, choice: Choice, text: str) -> dict[str, Any]:
        """What a choice says, the first time with what it was asked, as far as that is wanted."""
        turn = self._heard.pop(choice.index, None)
        if turn is None:
            return {"text": text}
        told: dict[str, Any] = {}
        if self.request.echo:
            self._echoed[choice.index] = turn.prompt_ids
            text = self._state.texts.tokenizer.decode(turn.prompt_ids) + text
        if self.request.return_token_ids:
            told["prompt_token_ids"] = list(turn.prompt_ids)
        if self.request.prompt_logprobs is not None and choice.prompt_logprobs is not None:
            told["prompt_logprobs"] = prompt_logprobs(self._names, turn.prompt_ids, choice.prompt_logprobs)
        return {"text": text} | told

    def logprobs(self, choice: Choice, start: int) -> dict[str, Any] | None:
        token_ids, known = choice.token_ids[start:], choice.logprobs[start:]
        if self.request.logprobs is None or (self.request.stream and not token_ids):
            return None
        offsets, echoed = self._offsets[choice.index], self._echoed.pop(choice.index, ())
        if not echoed:
            return completion_logprobs(self._names, token_ids, known, offsets)
        prompted = choice.prompt_logprobs or [None] * len(echoed)
        told = completion_logprobs(self._names, [*echoed, *token_ids], [*prompted, *known], offsets)
        for place in (place for place, logprob in enumerate(prompted) if logprob is None):
            for name in ("token_logprobs", "sampling_logprobs", "top_logprobs"):
                told[name][place] = None  # nothing came before it that could have predicted it
        return told


async def begin_completion(
    state: ServerState,
    request: CompletionRequest,
    caller: Caller,
    dialect: type[CompletionAnswer] = CompletionAnswer,
    write: Writer | None = None,
) -> CompletionAnswer:
    """From a request to turns that the engine has taken; every refusal names its field.

    `dialect` tells the answer, and `write` the prompts where texts and images are to be read otherwise.
    """
    state.check_model(request.model)
    places = [(f"images.{number}", url) for number, url in enumerate(request.images or ())]
    images = await state.images.read_urls(places, "images")
    prompts = await state.off_loop(lambda: (write or _prompts)(state, request, images))
    if request.n * len(prompts) > state.settings.max_choices:
        most = state.settings.max_choices
        raise field_error("n", f"{request.n} answers to {len(prompts)} prompts are more than {most}")
    with blaming("structured_outputs", GrammarError, code="invalid_grammar"):
        grammar = request.structured_outputs.as_grammar() if request.structured_outputs is not None else None
    fields = {"invalid": "prompt", "too_long": "prompt", "grammar": "structured_outputs"}
    # A prompt is scored where it is computed, so each of its answers has one of its own then.
    asked = _one_by_one(request) if request.prompt_logprob_count is not None else [request]
    turns: list[ActiveTurn] = []
    try:
        for prompt in prompts:
            for one in asked:
                turns.append(await begin_turn(state, one, caller, prompt, grammar, fields))
    except BaseException:
        for turn in turns:
            turn.close()
        raise
    answer = dialect(state, request, turns)
    answer.copies = len(asked)
    return answer


def _one_by_one(request: CompletionRequest) -> list[CompletionRequest]:
    """Requests for one answer each, with the seeds that the answers to one request have."""
    seeds = [None if request.seed is None else request.seed + number for number in range(request.n)]
    return [request.model_copy(update={"n": 1, "seed": seed}) for seed in seeds]


def _prompts(state: ServerState, request: CompletionRequest, images: Sequence[SentImage]) -> list[Prompt]:
    encode = state.texts.tokenizer.encode
    texts = [prompt for prompt in request.prompts if isinstance(prompt, str)]
    check_length(state.texts.tokenizer, texts, state.max_context * max(1, len(texts)), "prompt")
    prompts = [tuple(encode(prompt) if isinstance(prompt, str) else prompt) for prompt in request.prompts]
    if images and len(prompts) > 1:
        raise field_error("images", "they go with one prompt", "invalid_value")
    for number, prompt in enumerate(prompts):
        if not prompt and request.session_id is None:
            raise field_error("prompt", f"prompt {number} is empty", "invalid_value")
    return [Prompt(prompt, placed(state.texts.config.vision, prompt, images)) for prompt in prompts]


def placed(
    vision: VisionConfig | None, prompt: Sequence[int], images: Sequence[SentImage]
) -> list[tuple[int, SentImage]]:
    """Where each image's own tokens begin in a prompt that has room for all of them, as `prompt_token_ids` have."""
    if vision is None:
        if images:
            raise field_error("images", "this model takes text only", "invalid_value")
        return []
    free = [place for place, id_ in enumerate(prompt) if id_ == vision.image_token_id]
    wanted = [image_tokens(*image.size, vision) for image in images]
    if len(free) != sum(wanted):
        problem = f"the images take {sum(wanted)} tokens {vision.image_token_id}, and the prompt has {len(free)}"
        raise field_error("prompt", problem, "invalid_value")
    return [(free[sum(wanted[:number])], image) for number, image in enumerate(images)]
