"""Fields of requests that this server does not know: told and ignored, unless the answer would be another with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holotron.server.errors import field_error
from holotron.server.fields import Options

# Parameters of other servers that would change the answer, each with the value that would not.
CHANGES_ANSWER: dict[str, Any] = {
    "add_generation_prompt": True,
    "allowed_token_ids": [],
    "audio": {},
    "bad_words": [],
    "best_of": 1,
    "chat_template": "",
    "continue_final_message": False,
    "custom_logit_processor": "",
    "custom_params": {},
    "documents": [],
    "early_stopping": False,
    "ebnf": "",
    "enable_thinking": True,
    "function_call": "auto",
    "functions": [],
    "guided_choice": [],
    "guided_grammar": "",
    "guided_json": {},
    "guided_regex": "",
    "include_stop_str_in_output": False,
    "json_schema": "",
    "length_penalty": 1.0,
    "logits_processors": [],
    "lora_path": "",
    "mm_processor_kwargs": {},
    "no_stop_trim": False,
    "prompt_embeds": [],
    "regex": "",
    "skip_special_tokens": True,
    "stop_regex": [],
    "suffix": "",
    "system": "",
    "thinking": {"type": "disabled"},
    "truncate_prompt_tokens": -1,
    "use_beam_search": False,
    "web_search_options": {},
}
SHOWN = 400


def take_unknown(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Remove the unknown fields of a request, and tell their names and values."""
    if isinstance(value, Options):
        extra = value.__pydantic_extra__ or {}
        yield from ((path + name, extra.pop(name)) for name in list(extra))
        for name in type(value).model_fields:
            yield from take_unknown(getattr(value, name), f"{path}{name}.")
    elif isinstance(value, list) and value and isinstance(value[0], Options):
        for number, item in enumerate(value):
            yield from take_unknown(item, f"{path}{number}.")


def ignore_unknown(request: object, strict: bool) -> str:
    """Remove what a request has too much, and say which fields were ignored; an error if one may not be."""
    ignored = []
    for name, value in take_unknown(request):
        if strict:
            raise field_error(name, "there is no such field, and this server takes no others", "unknown_field")
        if name in CHANGES_ANSWER and value != CHANGES_ANSWER[name]:
            problem = "this server does not support it, and the answer would be another without it"
            raise field_error(name, problem, "unsupported_parameter")
        ignored.append(name)
    told = ", ".join(ignored).encode("ascii", "replace").decode()
    return "".join(letter for letter in told if letter.isprintable() and letter not in '"\\')[:SHOWN]
