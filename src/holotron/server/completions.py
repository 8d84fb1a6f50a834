"""Completions: text or token ids in, text and token ids out."""

from __future__ import annotations

from collections import Counter
from typing import Any

from holotron.engine.grammar import GrammarError
from holotron.engine.requests import Event
from holotron.server.answer import TurnAnswer
from holotron.server.auth import Caller
from holotron.server.errors import blaming, field_error
from holotron.server.lengths import check_length
from holotron.server.logprobs import completion_logprobs
from holotron.server.schemas import CompletionRequest
from holotron.server.state import ServerState
from holotron.server.turns import ActiveTurn, Choice, Prompt, begin_turn


class CompletionAnswer(TurnAnswer[CompletionRequest]):
    """The answers to one or several prompts."""

    prefix = "cmpl"
    whole_object = chunk_object = "text_completion"

    def __init__(self, state: ServerState, request: CompletionRequest, turns: list[ActiveTurn]) -> None:
        super().__init__(state, request, turns)
        self._told_letters = Counter[int]()  # by choice, for the offsets of what comes next

    def body(self, turn: ActiveTurn, choice: Choice) -> dict[str, Any]:
        prompt = {"prompt_token_ids": list(turn.prompt_ids)} if self.request.return_token_ids else {}
        return {"text": choice.text, **prompt}

    def piece(self, choice: Choice, event: Event) -> dict[str, Any]:
        return {"text": event.text}

    def logprobs(self, choice: Choice, start: int) -> dict[str, Any] | None:
        token_ids, known = choice.token_ids[start:], choice.logprobs[start:]
        if self.request.logprobs is None or (self.request.stream and not token_ids):
            return None
        told = completion_logprobs(self._state.texts.tokenizer, token_ids, known, self._told_letters[choice.index])
        self._told_letters[choice.index] += sum(map(len, told["tokens"]))
        return told


async def begin_completion(state: ServerState, request: CompletionRequest, caller: Caller) -> CompletionAnswer:
    """From a request to turns that the engine has taken; every refusal names its field."""
    state.check_model(request.model)
    prompts = await state.off_loop(lambda: _prompts(state, request))
    if request.n * len(prompts) > state.settings.max_choices:
        most = state.settings.max_choices
        raise field_error("n", f"{request.n} answers to {len(prompts)} prompts are more than {most}")
    with blaming("structured_outputs", GrammarError, code="invalid_grammar"):
        grammar = request.structured_outputs.as_grammar() if request.structured_outputs is not None else None
    fields = {"invalid": "prompt", "too_long": "prompt", "grammar": "structured_outputs"}
    turns: list[ActiveTurn] = []
    try:
        for prompt in prompts:
            turns.append(await begin_turn(state, request, caller, prompt, grammar, fields))
    except BaseException:
        for turn in turns:
            turn.close()
        raise
    return CompletionAnswer(state, request, turns)


def _prompts(state: ServerState, request: CompletionRequest) -> list[Prompt]:
    encode = state.texts.tokenizer.encode
    texts = [prompt for prompt in request.prompts if isinstance(prompt, str)]
    check_length(state.texts.tokenizer, texts, state.max_context * max(1, len(texts)), "prompt")
    prompts = [tuple(encode(prompt) if isinstance(prompt, str) else prompt) for prompt in request.prompts]
    vision = state.texts.config.vision
    for number, prompt in enumerate(prompts):
        if not prompt and request.session_id is None:
            raise field_error("prompt", f"prompt {number} is empty", "invalid_value")
        if vision is not None and vision.image_token_id in prompt:
            problem = f"prompt {number} has the image token {vision.image_token_id}; images come in chat messages"
            raise field_error("prompt", problem, "invalid_value")
    return [Prompt(prompt) for prompt in prompts]
