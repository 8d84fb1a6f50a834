"""Actions in few tokens, everything there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotron.engine.grammar import Grammar, GrammarCompiler
from holotron.model.config import ModelConfig
from holotron.model.errors import ModelError
from holotron.model.presets import preset
from holotron.model.text.policy_tokenizer import policy_library, policy_tokenizer

CONFIG = preset("holotron-nano").config
TOKENIZER = policy_tokenizer(CONFIG)


def test_a_click_is_five_tokens() -> None:
    for x, y in ((0, 0), (7, 1000), (512, 433), (1000, 51)):
        text = f'{{"action":"click","x":{x},"y":{y}}}'
        ids = TOKENIZER.encode(text)
        assert len(ids) == 5
        assert TOKENIZER.decode(ids) == text


@given(st.text(max_size=60))
def test_any_text_comes_back(text: str) -> None:
    if "\ufdd0" not in text and not any(0xD800 <= ord(letter) < 0xE000 for letter in text):
        assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_a_small_vocabulary_is_refused() -> None:
    small = ModelConfig(
        name="small", pattern="-", hidden_size=64, vocab_size=512, mlp=CONFIG.mlp, mamba=None, attention=None
    )
    with pytest.raises(ModelError, match="pieces of actions need"):
        policy_tokenizer(small)


def test_a_grammar_takes_whole_pieces_and_forces_none() -> None:
    """Forced text would be spelled in letters; a policy that learned pieces must be allowed to use them."""
    schema = {
        "type": "object",
        "properties": {"action": {"const": "click"}, "x": {"type": "integer", "minimum": 0, "maximum": 1000}},
        "required": ["action", "x"],
        "additionalProperties": False,
    }
    ids = TOKENIZER.encode('{"action":"click","x":512}')
    assert len(ids) == 3
    compiler = GrammarCompiler(TOKENIZER, CONFIG.vocab_size, frozenset(CONFIG.eos_token_ids))
    state = compiler.compile(Grammar.from_schema(schema))
    for token in ids:
        assert state.forced() == []
        state.advance(token)
    assert state.is_complete


def test_markup_at_the_end_of_a_vocabulary_leaves_pieces_room_before_it() -> None:
    config = preset("holo2-4b").config
    library = policy_library(config)
    assert max(library.get_vocab().values()) < config.vocab_size
    tokenizer = policy_tokenizer(config)
    action = '{"action":"click","x":37,"y":1000}'
    assert tokenizer.decode(tokenizer.encode(action)) == action
    assert len(tokenizer.encode(action)) == 5
