"""A tokenizer that needs no training: a token per byte, and the markup of the default chat template.

It gives a model without a vocabulary of its own, such as one with random weights, something to read and write.
"""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from holotron.model.config import ModelConfig
from holotron.model.errors import ModelError
from holotron.model.text.tokenizer import Tokenizer

_TURNS = ("<SPECIAL_10>", "<SPECIAL_11>")
_TAGS = tuple(
    f"<{slash}{tag}>" for tag in ("think", "TOOLCALL", "AVAILABLE_TOOLS", "TOOL_RESPONSE") for slash in ("", "/")
)


def byte_tokenizer(config: ModelConfig) -> Tokenizer:
    """Bytes and markup, with the ids that this model's configuration gives to its beginning, end and images."""
    return Tokenizer(byte_library(config))


def byte_library(config: ModelConfig, more: Sequence[str] = ()) -> tokenizers.Tokenizer:
    """The same as the library's own object, which can be saved as a tokenizer.json; `more` lie behind the bytes."""
    special: dict[str, int] = {}
    for text, id_ in (("<pad>", config.pad_token_id), ("<s>", config.bos_token_id)):
        if id_ is not None:
            special[text] = id_
    if config.eos_token_ids:
        special["<SPECIAL_12>"] = config.eos_token_ids[0]
    if (vision := config.vision) is not None:
        named = (vision.image_token_id, vision.image_start_token_id, vision.image_end_token_id)
        special |= {t: i for t, i in zip(("<image>", "<img>", "</img>"), named, strict=True) if i is not None}
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    taken = set(special.values())
    free = (id_ for id_ in range(config.vocab_size) if id_ not in taken)
    wanted = [*(text for text in (*_TURNS, *_TAGS) if text not in special), *letters, *more]
    ids = special | dict(zip(wanted, free, strict=False))
    if len(ids) < len(special) + len(wanted):
        raise ModelError(
            f"{config.name} has a vocabulary of {config.vocab_size}, too small for the {len(special) + len(wanted)} "
            "tokens of bytes and markup; give it a tokenizer.json"
        )
    library = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in (*special, *_TURNS)])
    library.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in _TAGS])
    return library
