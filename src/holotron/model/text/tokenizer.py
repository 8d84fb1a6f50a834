"""Text to token ids and back, with markup told from text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import tokenizers

from holotron.model.errors import ModelError

# A Unicode noncharacter, which text never needs. Before a special token's text it says: this is only text.
# Where a text has it all the same, it is followed by a second one, so that nothing is lost.
GUARD, GUARD_ITSELF = "\ufdd0", "\ufdd1"

# Half of a pair, which JSON can carry and UTF-8 cannot.
_SURROGATE = re.compile("[\ud800-\udfff]")
# From here on texts and tokens are a batch of one: only in a batch does the library let other threads run meanwhile.
_LONG = 16 * 1024


def _byte_letters() -> dict[str, int]:
    """The letters in which byte-level vocabularies write bytes: printable ones as they are, the rest from 256 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    other = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + number): byte for number, byte in enumerate(other)}


_BYTE_OF = _byte_letters()


class Tokenizer:
    """A tokenizer.json that tells markup from text.

    Markup are the tokens its file declares special, and declared tokens that look like tags: `<think>` is often not
    called special. Text between markup is encoded as one piece, as published byte-level tokenizers do it.
    """

    def __init__(self, source: Path | tokenizers.Tokenizer) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(source)) if isinstance(source, Path) else source
        except Exception as error:  # the library raises nothing narrower
            raise ModelError(f"the tokenizer {source} cannot be read: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        added = self._tokenizer.get_added_tokens_decoder()
        markup = {
            token.content: (id_, token) for id_, token in added.items() if token.special or _is_tag(token.content)
        }
        self._hidden_ids = frozenset(id_ for id_, token in added.items() if token.special)
        self.markup: dict[str, int] = {text: id_ for text, (id_, _) in markup.items()}
        self._markup_ids = frozenset(self.markup.values())
        self._eats_before = frozenset(text for text, (_, token) in markup.items() if token.lstrip)
        self._eats_after = frozenset(text for text, (_, token) in markup.items() if token.rstrip)
        self._lengths = sorted({len(text) for text in markup}, reverse=True)
        self._first = re.compile("|".join(sorted({re.escape(text[0]) for text in markup})) or "(?!)")
        self._beginnings = frozenset(text[:end] for text in markup for end in range(1, len(text)))
        self._endings = frozenset(text[start:] for text in markup for start in range(1, len(text)))
        # From here on the library sees no markup in any text; encode finds it, where it is wanted.
        self._tokenizer.add_special_tokens([token for _, token in markup.values()])
        self._tokenizer.encode_special_tokens = True

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    @property
    def ids(self) -> frozenset[int]:
        """Every id that is a token."""
        return frozenset(self._tokenizer.get_vocab(with_added_tokens=True).values())

    def to_json(self) -> str:
        """The tokenizer as the text of a tokenizer.json."""
        return self._tokenizer.to_str()

    def find(self, token: str) -> int | None:
        """The id of one token, if there is such a token."""
        return self._tokenizer.token_to_id(token)

    def id_of(self, token: str) -> int:
        """The id of one token, which must exist."""
        id_ = self.find(token)
        if id_ is None:
            raise ModelError(f"the tokenizer has no token {token!r}")
        return id_

    def token_of(self, id_: int) -> str:
        """The text of one token, which must exist."""
        token = self._tokenizer.id_to_token(id_)
        if token is None:
            raise ModelError(f"the tokenizer has no token with the id {id_}; its vocabulary has {self.vocab_size}")
        return token

    def encode(self, text: str, allow_special: bool = False) -> list[int]:
        """The ids of a text. With allow_special, markup in it is markup, except where `protect` has been."""
        if not allow_special:
            return self._encode_text(text)
        ids: list[int] = []
        done, eats_after = 0, False
        for start, token in self._find_markup(text):
            if start < done or text[start - 1 : start] == GUARD:
                continue
            piece = text[done:start].lstrip() if eats_after else text[done:start]
            ids += self._encode_text(_unguard(piece.rstrip() if token in self._eats_before else piece))
            ids.append(self.markup[token])
            done, eats_after = start + len(token), token in self._eats_after
        return ids + self._encode_text(_unguard(text[done:].lstrip() if eats_after else text[done:]))

    def count(self, text: str) -> int:
        """How many tokens a text has in which nothing is markup."""
        return len(self._encoding(text)) if text else 0

    def protect(self, text: str, keep: Iterable[str] = ()) -> str:
        """The text with a guard before everything in it that is markup or could become so beside other text.

        Wherever a template puts it, `encode` takes it as ordinary text, save for the tokens to keep; without markup
        in it, it comes back as it is, so that templates can look into it.
        """
        if GUARD in text:
            text = text.replace(GUARD, GUARD + GUARD_ITSELF)
        keep = frozenset(keep)
        guards = [start for start, token in self._find_markup(text) if token not in keep]
        longest = self._lengths[0] if self._lengths else 0
        guards += [
            start for start in range(max(0, len(text) - longest + 1), len(text)) if text[start:] in self._beginnings
        ]
        if any(text[:end] in self._endings for end in range(1, min(longest, len(text) + 1))):
            guards.append(0)
        pieces, done = [], 0
        for start in sorted(set(guards)):
            pieces += [text[done:start], GUARD]
            done = start
        return "".join([*pieces, text[done:]])

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of ids; ids beyond the vocabulary have none. Tags the file does not call special always stay."""
        if skip_special:
            ids = [id_ for id_ in ids if id_ not in self._hidden_ids]
        if len(ids) >= _LONG:
            return self._tokenizer.decode_batch([list(ids)], skip_special_tokens=False)[0]
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def token_bytes(self, id_: int) -> bytes:
        """The bytes that one token stands for, which may be a part of a character; none beyond the vocabulary."""
        text = self._tokenizer.decode([id_], skip_special_tokens=False)
        if "\ufffd" not in text:
            return text.encode("utf-8", "replace")
        token = self._tokenizer.id_to_token(id_) or ""
        if match := re.fullmatch("<0x([0-9A-F]{2})>", token):
            return bytes.fromhex(match[1])
        if all(letter in _BYTE_OF for letter in token):
            return bytes(_BYTE_OF[letter] for letter in token)
        return text.encode()

    def is_hidden(self, id_: int) -> bool:
        """Whether `decode` leaves the token out."""
        return id_ in self._hidden_ids

    def _find_markup(self, text: str) -> Iterator[tuple[int, str]]:
        """Every place where markup starts, with the longest token that does; places may overlap."""
        for match in self._first.finditer(text):
            start = match.start()
            for length in self._lengths:
                if (token := text[start : start + length]) in self.markup:
                    yield start, token
                    break

    def _encode_text(self, text: str) -> list[int]:
        if not text:
            return []
        ids: list[int] = self._encoding(text).ids
        if not self._markup_ids.isdisjoint(ids):
            # A vocabulary that knows the markup as a word of its own; letter by letter it cannot.
            ids = [id_ for letter in text for id_ in self._encoding(letter).ids]
        return ids

    def _encoding(self, text: str) -> tokenizers.Encoding:
        if _SURROGATE.search(text):
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if len(text) >= _LONG:
            return self._tokenizer.encode_batch([text], add_special_tokens=False)[0]
        return self._tokenizer.encode(text, add_special_tokens=False)


def _unguard(text: str) -> str:
    return re.sub(f"{GUARD}({GUARD_ITSELF}?)", lambda match: GUARD if match[1] else "", text)


def _is_tag(text: str) -> bool:
    return len(text) > 2 and text[0] + text[-1] in ("<>", "[]")


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint folder."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{path} is missing; a checkpoint folder must have one")
    return Tokenizer(path)
