"""Log-probabilities of tokens that are only a part of a character."""

from __future__ import annotations

import codecs
from typing import Any

from holotron.engine.requests import TokenEvent, TokenLogprobs
from holotron.model.text.byte_tokenizer import byte_tokenizer
from holotron.server.logprobs import TextOffsets, TokenNames, chat_logprobs, completion_logprobs
from holotron.server.turns import Choice

from .live import TINY

TOKENIZER = byte_tokenizer(TINY)
TEXT = "aé€😀b"
IDS = TOKENIZER.encode(TEXT)
KNOWN = [TokenLogprobs(-1.0, -0.5, ((IDS[3], -0.1), (IDS[0], -0.2))) for _ in IDS]


def test_bytes_are_those_of_the_token() -> None:
    entries = chat_logprobs(TokenNames(TOKENIZER), IDS, KNOWN)
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == TEXT
    assert entries[1]["token"] == "\\xc3"
    assert entries[1]["bytes"] == [0xC3]
    assert entries[0]["top_logprobs"][0] == {"token": "\\xe2", "logprob": -0.1, "bytes": [0xE2]}


def test_offsets_are_places_in_the_text() -> None:
    told = completion_logprobs(TokenNames(TOKENIZER), IDS, KNOWN, TextOffsets(TOKENIZER))
    assert told["text_offset"] == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4]
    for start in range(len(IDS)):  # cut anywhere, as a stream is
        offsets = TextOffsets(TOKENIZER)
        assert offsets.take(IDS[:start]) + offsets.take(IDS[start:]) == told["text_offset"]


def test_the_token_that_was_drawn_is_among_its_alternatives() -> None:
    told = completion_logprobs(TokenNames(TOKENIZER), IDS, KNOWN, TextOffsets(TOKENIZER))
    for token, logprob, top in zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True):
        assert top[token] == logprob
        assert len(top) == (2 if token in ("a", "\\xe2") else 3)


def test_they_are_right_in_answers(http: Any) -> None:
    body = {"prompt": "Hello", "max_tokens": 60, "temperature": 1.5, "seed": 2, "ignore_eos": True, "logprobs": 2}
    answer = http.post("/v1/completions", json=body | {"return_tokens_as_token_ids": True}).json()["choices"][0]
    assert all(name.startswith("token_id:") for name in answer["logprobs"]["tokens"])
    ids = [int(name.removeprefix("token_id:")) for name in answer["logprobs"]["tokens"]]
    text, decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
    for id_, offset in zip(ids, answer["logprobs"]["text_offset"], strict=True):
        assert offset == len(text)
        text += "" if TOKENIZER.is_hidden(id_) else decoder.decode(TOKENIZER.token_bytes(id_))
    text += decoder.decode(b"", final=True)
    assert text == answer["text"]
    assert any(len(TOKENIZER.token_bytes(id_)) and TOKENIZER.token_bytes(id_)[0] > 127 for id_ in ids)


def test_those_of_the_draw_take_the_place_of_the_models_own() -> None:
    for as_drawn, expected in ((False, -1.0), (True, -0.5)):
        choice = Choice(as_drawn=as_drawn)
        choice.add(TokenEvent((IDS[0],), "a", KNOWN[0], 0))
        told = completion_logprobs(TokenNames(TOKENIZER), choice.token_ids, choice.logprobs, TextOffsets(TOKENIZER))
        assert told["token_logprobs"] == [expected]
        assert told["sampling_logprobs"] == [-0.5]
