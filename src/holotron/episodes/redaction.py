"""Keeping secrets out of what is written: every text passes through the caller's function first."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from holotron.env.task import Noun
from holotron.episodes.record import ModelOutput, Step, StepAction

Redact = Callable[[str], str]
SomeNoun = TypeVar("SomeNoun", bound=Noun)
# Names that the store itself chose, and words from a fixed list.
_NOT_TEXT = {"id", "image", "space", "reason", "finish_reason", "steps_sha256"}
_TEXTS_OF_ACTIONS = {"text", "element", "option", "url", "reason"}


def redacted(noun: SomeNoun, redact: Redact) -> SomeNoun:
    """The same with every text passed through the function. Images are not looked at."""
    changes = {
        name: _redacted(getattr(noun, name), redact) for name in type(noun).model_fields if name not in _NOT_TEXT
    }
    result = noun.model_copy(update=changes)
    if isinstance(result, StepAction):
        return result.model_copy(update={"text": _redacted_action(noun, redact)})
    if isinstance(noun, ModelOutput) and isinstance(result, ModelOutput) and result.text != noun.text:
        return result.model_copy(update=_without_tokens())
    if isinstance(noun, Step) and isinstance(result, Step):
        return _hide_escaped(noun, result)  # type: ignore[return-value]
    return result


def _redacted(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Noun):
        return redacted(value, redact)
    if isinstance(value, tuple) and any(isinstance(item, str) for item in value):
        return tuple(_redacted(item, redact) for item in value)
    if isinstance(value, dict):
        return {redact(key): _redacted(item, redact) for key, item in value.items()}
    return value


def _redacted_action(action: Any, redact: Redact) -> str:
    # Inside JSON a secret may be escaped, so the texts are taken out first.
    try:
        fields = json.loads(action.text)
    except ValueError:
        return redact(action.text)
    if not isinstance(fields, dict):
        return redact(action.text)
    for name, value in fields.items():
        if name in _TEXTS_OF_ACTIONS and isinstance(value, str):
            fields[name] = redact(value)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _hide_escaped(before: Step, after: Step) -> Step:
    """If the action held a secret that was not found in the model's own text, it is there in escaped form."""
    if before.action == after.action or after.output is None or after.output.redacted:
        return after
    return after.model_copy(update={"output": after.output.model_copy(update={"text": "", **_without_tokens()})})


def _without_tokens() -> dict[str, Any]:
    # From the tokens the text could be read again.
    of_tokens = ("token_ids", "logprobs", "model_logprobs", "forced", "weight_versions")
    return {**dict.fromkeys(of_tokens), "redacted": True}
