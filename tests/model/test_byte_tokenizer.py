"""Every text survives the byte tokenizer, and the ids are those the model expects."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotron.model.errors import ModelError
from holotron.model.presets import PRESETS
from holotron.model.text.byte_tokenizer import byte_tokenizer
from holotron.model.text.chat_template import DEFAULT_TEMPLATE, ChatTemplate
from holotron.model.text.conversation import ConversationWriter

NANO = PRESETS["holotron-nano"].config
TOKENIZER = byte_tokenizer(NANO)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_there_and_back(text):
    ids = TOKENIZER.encode(text)
    assert len(ids) == len(text.encode())
    assert TOKENIZER.decode(ids) == text
    assert all(0 <= id_ < NANO.vocab_size for id_ in ids)


def test_markup_has_the_models_ids():
    ids = TOKENIZER.encode("<s><image><SPECIAL_12>", allow_special=True)
    assert ids == [NANO.bos_token_id, NANO.vision.image_token_id, NANO.eos_token_ids[0]]
    assert len(TOKENIZER.encode("<s>")) == 3


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_talked_to(name):
    config = PRESETS[name].config
    builder = ConversationWriter(byte_tokenizer(config), ChatTemplate(DEFAULT_TEMPLATE.read_text()), config)
    assert len(builder.write([{"role": "user", "content": "Hi"}], []).token_ids) > 10


def test_too_small_a_vocabulary():
    with pytest.raises(ModelError, match="vocabulary of 100, too small"):
        byte_tokenizer(replace(NANO, vocab_size=100))
