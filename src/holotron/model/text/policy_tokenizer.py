"""The tokenizer of small policies: letters for what is read and typed, one token for each piece of an action.

`{"action":"click","x":512,"y":433}` is five tokens here, and a coordinate is always one: a policy that answers in the
JSON everybody else reads spends its capacity and its time on where, not on spelling.
"""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import AddedToken

from holotron.actions.coordinates import SCALE
from holotron.model.config import ModelConfig
from holotron.model.errors import ModelError
from holotron.model.text.byte_tokenizer import byte_library
from holotron.model.text.chat_template import ChatTemplate
from holotron.model.text.tokenizer import Tokenizer

TEMPLATE = Path(__file__).with_name("policy_chat.jinja")
# The tokens between which the template puts an answer.
ANSWER, END = "<SPECIAL_11>", "<SPECIAL_12>"
PIECES = (
    *(f'{{"action":"{kind}","' for kind in ("click", "double_click", "hover", "drag", "select")),
    *(f'{{"action":"scroll","direction":"{way}"' for way in ("up", "down", "left", "right")),
    *(f'{{"action":"{kind}","text":"' for kind in ("type", "answer")),
    '{"action":"press","keys":"',
    '{"action":"wait","seconds":',
    '{"action":"infeasible","reason":"',
    '{"action":"goto","url":"',
    '{"action":"back"}',
    '{"',
    ',"',
    '","',
    '"}',
    ',"to_',
    ',"option":"',
    ',"amount":',
    '","repeat":',
    ',"clear":true',
    ',"enter":true',
    ',"button":"right"',
)
AXES = ("x", "y")


def coordinate_token(axis: str, value: int) -> str:
    return f'{axis}":{value}'


def has_pieces(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer has one token for a coordinate."""
    return tokenizer.find(coordinate_token(AXES[0], 0)) is not None


def policy_library(config: ModelConfig) -> tokenizers.Tokenizer:
    """The tokenizer as the library's own object, which can be saved as a tokenizer.json."""
    library = byte_library(config)
    pieces = [*PIECES, *(coordinate_token(axis, value) for axis in AXES for value in range(SCALE + 1))]
    needed = library.get_vocab_size() + len(pieces)
    if needed > config.vocab_size:
        raise ModelError(f"{config.name} has a vocabulary of {config.vocab_size}; pieces of actions need {needed}")
    # What is added is numbered behind the last id, where a model whose markup comes last has no room for it.
    if max(library.get_vocab().values()) + len(pieces) >= config.vocab_size:
        library = byte_library(config, pieces)
    library.add_tokens([AddedToken(piece, special=False, normalized=False) for piece in pieces])
    return library


def policy_tokenizer(config: ModelConfig) -> Tokenizer:
    return Tokenizer(policy_library(config))


def policy_template() -> ChatTemplate:
    return ChatTemplate(TEMPLATE.read_text(encoding="utf-8"))


def save_policy_texts(config: ModelConfig, folder: Path) -> None:
    """What makes a folder with weights a whole checkpoint: its tokenizer and its chat template."""
    policy_library(config).save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
