"""Text comes out whole and on time, and ends where it should."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from holotron.engine.sampling_params import SamplingParams
from holotron.engine.stopping import CONTEXT_TOKENS, Finish, StopChecker

# ---- text ----

EOS = 0


@lru_cache
def toy_tokenizer() -> tokenizers.Tokenizer:
    toy = tokenizers.Tokenizer(models.BPE())
    toy.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    toy.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<eos>", "<pad>"],
        show_progress=False,
    )
    toy.train_from_iterator(["Click the button. Stop here. 你好世界 😀😃 naïve é"] * 9, trainer)
    return toy


def decode(ids: Sequence[int]) -> str:
    return toy_tokenizer().decode(list(ids), skip_special_tokens=True)


def encode(text: str) -> list[int]:
    return toy_tokenizer().encode(text, add_special_tokens=False).ids


@lru_cache
def ids_of_bytes() -> list[int]:
    """The token of each single byte: printable ones are written as themselves, the others from U+0100 on."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in plain]
    return [toy_tokenizer().token_to_id(chr(b if b in plain else 256 + others.index(b))) for b in range(256)]


def byte_ids(data: bytes) -> list[int]:
    """One token per byte, whatever merges there are."""
    return [ids_of_bytes()[byte] for byte in data]


def stream(ids: Sequence[int], **kwargs: Any) -> tuple[list[str], Finish | None]:
    checker = StopChecker(SamplingParams(**{"max_tokens": 10**6, **kwargs}), decode, [EOS])
    deltas = []
    for id_ in ids:
        deltas.append(checker.push(id_))
        if checker.finish is not None:
            return deltas, checker.finish
    return [*deltas, checker.flush()], None


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before the stop that is complete first."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))]
    return text


TEXTS = [
    "Click the button. Stop here.",
    "日本語と你好",
    "👩‍👩‍👧‍👦 and 🇫🇷",
    "e\u0301a\u0308 नमस्ते",
    "naïve \r\n\t",
    "𝒳\u200d",
]


@pytest.mark.parametrize("text", TEXTS)
def test_characters_come_whole(text: str) -> None:
    for ids in (encode(text), byte_ids(text.encode())):
        deltas, finish = stream([*ids, EOS])
        assert "".join(deltas) == text
        assert finish == Finish("eos")
        assert not any("\ufffd" in delta for delta in deltas)


@given(
    st.lists(st.one_of(st.sampled_from(TEXTS).map(encode), st.lists(st.integers(0, 329), max_size=40)), max_size=6),
    st.lists(
        st.sampled_from(["Stop", "op here", "好", "\n\n", "é", "t", "😀😃", "ick th", "\ufffd\ufffd"]), max_size=3
    ),
    st.sampled_from([10**6, 1, 5, 40]),
)
@settings(max_examples=150, deadline=None)
def test_deltas_add_up_to_the_text_before_the_stop(pieces: list[list[int]], stops: list[str], max_tokens: int) -> None:
    ids = [id_ for piece in pieces for id_ in piece]
    deltas, finish = stream(ids, stop=tuple(stops), ignore_eos=True, max_tokens=max_tokens)
    if finish is None:
        # Ended from outside: what was held back comes as it is.
        assert cut(decode(ids), stops) == cut("".join(deltas), stops)
        assert "".join(deltas) == decode(ids) or any("\ufffd" in stop for stop in stops)
    else:
        assert "".join(deltas) == cut(decode(ids[: len(deltas)]), stops)
        assert finish.reason in ("stop", "length")
        assert finish.reason == "length" or finish.stop in stops


@given(st.binary(max_size=200), st.integers(0, 70))
@settings(max_examples=100, deadline=None)
def test_broken_bytes_of_any_length_come_out_as_the_decoder_shows_them(data: bytes, repeated: int) -> None:
    ids = byte_ids(data + b"\x80" * repeated + b"\xf0\x9f\x98" * repeated + data)
    deltas, _ = stream(ids)
    assert "".join(deltas) == decode(ids)


def test_a_stop_text_is_found_across_tokens_and_never_shown() -> None:
    deltas, finish = stream(byte_ids(b"abc<st<stop>def"), stop=("<stop>",))
    assert deltas == ["a", "b", "c", "", "", "", "<st", "", "", "", "", ""]
    assert finish == Finish("stop", "<stop>")


def test_the_stop_that_is_complete_first_counts() -> None:
    for ids in (encode("xabcdef"), byte_ids(b"xabcdef")):
        deltas, finish = stream(ids, stop=("abcdef", "bcd"))
        assert ("".join(deltas), finish) == ("xa", Finish("stop", "bcd"))
    # The same if they come in one token.
    checker = StopChecker(SamplingParams(stop=("abcdef", "bcd")), lambda ids: "xabcdef" * len(ids))
    assert (checker.push(9), checker.finish) == ("xa", Finish("stop", "bcd"))


def test_a_stop_on_the_last_token_wins_over_the_length() -> None:
    assert stream(byte_ids(b"ab!"), stop=("!",), max_tokens=3) == (["a", "b", ""], Finish("stop", "!"))


def test_the_length_gives_out_what_was_held_back() -> None:
    assert stream(byte_ids("ab€".encode()[:-1]), stop=("b€",), max_tokens=4) == (
        ["a", "", "", "b\ufffd"],
        Finish("length"),
    )


def test_stop_ids_end_without_text_and_the_end_token_can_be_ignored() -> None:
    period = encode(".")[0]
    assert stream([*byte_ids(b"ab"), period, EOS], stop_token_ids=(period,)) == (["a", "b", ""], Finish("stop", period))
    deltas, finish = stream([*byte_ids(b"a"), EOS, *byte_ids(b"b")], ignore_eos=True)
    assert ("".join(deltas), finish) == ("ab", None)


def test_stop_texts_wait_for_the_minimum_length() -> None:
    deltas, finish = stream(byte_ids(b"a!b!c"), stop=("!",), min_tokens=3)
    assert ("".join(deltas), finish) == ("a!b", Finish("stop", "!"))


def test_nothing_follows_the_end() -> None:
    checker = StopChecker(SamplingParams(max_tokens=1), decode)
    checker.push(5)
    with pytest.raises(ValueError, match="too late"):
        checker.push(5)


def test_only_a_short_window_is_ever_decoded() -> None:
    longest = 0

    def watched(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return decode(ids)

    checker = StopChecker(SamplingParams(max_tokens=10**6), watched)
    ids = byte_ids(b"\x80" * 500 + "你".encode() * 300) + [1] * 500
    assert "".join(map(checker.push, ids)) + checker.flush() == decode(ids)
    assert longest == 2 * CONTEXT_TOKENS
