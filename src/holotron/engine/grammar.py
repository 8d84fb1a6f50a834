"""Text that must have a form: a grammar becomes, token by token, the set of tokens that may come next."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from holotron.model.text.policy_tokenizer import has_pieces
from holotron.model.text.tokenizer import GUARD, Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from torch import Tensor

Kind = Literal["json_schema", "regex", "lark", "choice"]
Result = TypeVar("Result")

# Compiling is quadratic in places: at this size the worst grammars known take about two seconds.
MAX_SOURCE_BYTES = 128 * 1024
COMPILE_SECONDS = 20.0
# llguidance follows references recursively, in native code. A stack that overflows there kills the whole process, so
# compiling gets one that no source of the size above can fill; it is only address space until it is used.
COMPILE_STACK_BYTES = 512 * 1024 * 1024
KEPT_GRAMMARS = 32
# Answers of one form begin alike: the masks of their first tokens are kept, up to so much memory for a grammar.
MASKED_TOKENS = 12
MASKED_BYTES = 8 * 2**20

_stack_size_lock = threading.Lock()


class GrammarError(ValueError):
    """A grammar that cannot be compiled or satisfied, or a token that does not follow it."""


@dataclass(frozen=True)
class Grammar:
    """The form a text must have. The source of a choice is a JSON list of texts.

    JSON is written without whitespace: more of it is forced then and need not be decoded.
    within: a Lark grammar around it, in which it is called @body.
    inner: Lark grammars by the names, such as @name, that a Lark grammar calls them.
    """

    kind: Kind
    source: str
    within: str = ""
    inner: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise GrammarError(f"there is no grammar kind {self.kind!r}; choose one of {', '.join(get_args(Kind))}")
        try:
            size = len(self.source.encode()) + sum(len(source.encode()) for _, source in self.inner)
        except UnicodeEncodeError as error:
            raise GrammarError(f"the {self.kind} grammar is not valid Unicode text: {error}") from error
        if size > MAX_SOURCE_BYTES:
            raise GrammarError(f"the {self.kind} grammar has {size} bytes; {MAX_SOURCE_BYTES} are the most allowed")
        if self.kind == "json_schema" and not isinstance(_parse(self), dict):
            raise GrammarError(f"a JSON schema is an object, not {self.source[:80]}")
        if self.kind == "choice":
            choices = _parse(self)
            if not isinstance(choices, list) or not choices or not all(isinstance(text, str) for text in choices):
                raise GrammarError(f"a choice is a JSON list of at least one text, not {self.source[:80]!r}")

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any]) -> Grammar:
        return cls("json_schema", json.dumps(schema))

    @classmethod
    def from_choices(cls, choices: Sequence[str]) -> Grammar:
        return cls("choice", json.dumps(list(choices)))


class GrammarState:
    """Where one text stands in its grammar. masks: those that its copies share, by the tokens before them."""

    def __init__(
        self,
        matcher: LLMatcher,
        vocab_size: int,
        eos_ids: frozenset[int],
        forces: bool = True,
        masks: dict[tuple[int, ...], NDArray[np.int32]] | None = None,
    ) -> None:
        self._matcher = matcher
        self._forces = forces
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids
        self._taken: list[int] = []
        self._masks = {} if masks is None else masks
        # The matcher forgets an end token that comes after the last possible text; rolling back must count it.
        self._ended = False

    @property
    def is_complete(self) -> bool:
        """Whether the text may end here: the end token is allowed."""
        return bool(self._matcher.is_accepting())

    @property
    def is_finished(self) -> bool:
        """Whether nothing but an end token may follow, so that there is no need to sample it."""
        return self._ended or (self._matcher.is_stopped() and not self._matcher.is_error())

    def mask_into(self, bitmask_row: Tensor) -> None:
        """Sets the bits of the tokens that may come next, and clears all others: int32 on the CPU, 32 tokens each."""
        import torch  # a process that only compiles does without it

        words = (self._vocab_size + 31) // 32
        if bitmask_row.dtype != torch.int32 or bitmask_row.shape != (words,) or bitmask_row.device.type != "cpu":
            raise ValueError(
                f"a bitmask row for {self._vocab_size} tokens is int32 of shape ({words},) on the CPU, not "
                f"{bitmask_row.dtype} of shape {tuple(bitmask_row.shape)} on {bitmask_row.device}"
            )
        if not bitmask_row.is_contiguous():
            raise ValueError("a bitmask row must be contiguous; take a row of a row-major tensor")
        taken = tuple(self._taken) if len(self._taken) <= MASKED_TOKENS else None
        row: NDArray[np.int32] = bitmask_row.numpy()
        if taken is not None and (kept := self._masks.get(taken)) is not None:
            row[:] = kept
            return
        self._matcher.unsafe_compute_mask_ptr(bitmask_row.data_ptr(), words * 4)
        self._check()
        if taken is not None and len(self._masks) * row.nbytes < MASKED_BYTES:
            self._masks[taken] = row.copy()

    def advance(self, token_id: int) -> None:
        """Takes the next token. One that the grammar does not allow is an error and changes nothing."""
        if self._ended:
            raise GrammarError(f"the text has ended; the token {token_id} cannot follow its end token")
        if token_id in self._eos_ids:
            if not self.is_complete:
                raise GrammarError(f"the text cannot end with the token {token_id} here: the grammar wants more")
            self._ended = True
        else:
            in_range = 0 <= token_id < self._vocab_size
            taken = self._matcher.try_consume_tokens([token_id]) if in_range else 0
            self._check()
            if not taken:
                raise GrammarError(f"the grammar does not allow the token {token_id} here")
        self._taken.append(token_id)

    def forced(self) -> list[int]:
        """The tokens that must come next, as the tokenizer itself would write them. They are not taken yet."""
        if self.is_finished or not self._forces:
            return []
        tokens = self._matcher.compute_ff_tokens()
        self._check()
        return list(tokens)

    def rollback(self, count: int) -> None:
        """Takes back the last tokens."""
        if not 0 <= count <= len(self._taken):
            raise ValueError(f"cannot roll back {count} tokens: {len(self._taken)} were taken")
        del self._taken[len(self._taken) - count :]
        if self._ended and count:
            self._ended = False
            count -= 1
        if count:
            self._matcher.rollback(count)
            self._check()

    def copy(self) -> GrammarState:
        """A second state at the same place, for a fork."""
        other = GrammarState(self._matcher.deep_copy(), self._vocab_size, self._eos_ids, self._forces, self._masks)
        other._taken, other._ended = list(self._taken), self._ended
        return other

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarError(f"the grammar has failed: {_first_line(self._matcher.get_error())}")


class GrammarCompiler:
    """Grammars for one vocabulary. It may be larger than the tokenizer's: what has no text is never allowed.

    Where tokens span what a form forces and what it leaves free, such as `x":512`, nothing is forced: the model chooses
    each token itself, among those the form allows. Forced text would be spelled in letters it never learned to use.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_ids: Sequence[int]) -> None:
        wrong = [id_ for id_ in eos_ids if not 0 <= id_ < vocab_size]
        if wrong or not eos_ids:
            raise ValueError(f"eos_ids must be ids below {vocab_size}, at least one; they are {list(eos_ids)}")
        if tokenizer.vocab_size > vocab_size:
            raise ValueError(f"the tokenizer has {tokenizer.vocab_size} tokens and the model only {vocab_size}")
        self.vocab_size = vocab_size
        self.eos_ids = frozenset(eos_ids)
        self._forces = not has_pieces(tokenizer)
        self._llguidance = _import_llguidance()
        text = _hide_special_tokens(tokenizer.to_json())
        self._tokenizer: LLTokenizer = self._llguidance.LLTokenizer(
            text, n_vocab=vocab_size, eos_token=list(dict.fromkeys(eos_ids))
        )
        self._kept: OrderedDict[Grammar, GrammarState] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, grammar: Grammar) -> GrammarState:
        """The state before the first token. A grammar that was compiled not long ago is only copied.

        A hard grammar takes seconds: call this from a thread of its own.
        """
        kept = self.kept(grammar)
        if kept is not None:
            return kept
        state = _call_with_large_stack(lambda: self._compile(grammar), f"compiling the {grammar.kind} grammar")
        with self._lock:
            self._kept[grammar] = state.copy()
            if len(self._kept) > KEPT_GRAMMARS:
                self._kept.popitem(last=False)
        return state

    def kept(self, grammar: Grammar) -> GrammarState | None:
        """The state before the first token, if the grammar was compiled not long ago."""
        with self._lock:
            kept = self._kept.get(grammar)
            if kept is None:
                return None
            self._kept.move_to_end(grammar)
            return kept.copy()

    def _compile(self, grammar: Grammar) -> GrammarState:
        limits = self._llguidance.LLParserLimits(verbose_errors=False)
        try:
            matcher = self._llguidance.LLMatcher(self._tokenizer, self._translate(grammar), log_level=0, limits=limits)
        except ValueError as error:
            raise GrammarError(f"the {grammar.kind} grammar is not valid: {_first_line(str(error))}") from error
        if matcher.is_error():
            raise GrammarError(f"the {grammar.kind} grammar is not valid: {_first_line(matcher.get_error())}")
        state = GrammarState(matcher, self.vocab_size, self.eos_ids, self._forces)
        # Some contradictions only show when the first token is asked for.
        try:
            mask = matcher.compute_bitmask()
            state._check()
        except (GrammarError, ValueError) as error:
            raise GrammarError(
                f"no text satisfies the {grammar.kind} grammar, or it is too complex: {error}"
            ) from error
        if not any(mask):
            raise GrammarError(f"no text that this tokenizer can write satisfies the {grammar.kind} grammar")
        return state

    def _translate(self, grammar: Grammar) -> str:
        if not grammar.within:
            return self._translate_body(grammar)
        body = self._translate_body(grammar)
        parts = json.loads(body)["grammars"] if body.startswith("{") else [{"lark_grammar": body}]
        return json.dumps({"grammars": [{"lark_grammar": grammar.within}, {**parts[0], "name": "body"}, *parts[1:]]})

    def _translate_body(self, grammar: Grammar) -> str:
        matcher = self._llguidance.LLMatcher
        if grammar.kind == "regex":
            return str(matcher.grammar_from_regex(grammar.source))
        if grammar.inner:
            parts = [{"name": name, "lark_grammar": source} for name, source in grammar.inner]
            return json.dumps({"grammars": [{"lark_grammar": grammar.source}, *parts]})
        if grammar.kind == "lark":
            return str(matcher.grammar_from_lark(grammar.source))
        if grammar.kind == "choice":
            # One terminal rather than one rule per choice: thousands of choices stay cheap.
            texts = " | ".join(json.dumps(text, ensure_ascii=False) for text in json.loads(grammar.source))
            return str(matcher.grammar_from_lark(f"start: CHOICE\nCHOICE: {texts}"))
        options = {"whitespace_flexible": False}
        if not self._forces:
            inner = {"x-guidance": options, **json.loads(grammar.source)}
            return str(
                matcher.grammar_from_lark(f'%llguidance {{"no_forcing": true}}\nstart: %json {json.dumps(inner)}')
            )
        return str(matcher.grammar_from_json_schema(grammar.source, defaults=options))


def _parse(grammar: Grammar) -> Any:
    try:
        value = json.loads(grammar.source)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair hides behind an escape until here
        return value
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the {grammar.kind} grammar is not valid JSON: {error}") from error


def _import_llguidance() -> ModuleType:
    try:
        import llguidance
    except ImportError as error:
        raise ImportError("grammars need the package llguidance; install it with: pip install llguidance") from error
    return llguidance


def _hide_special_tokens(tokenizer_json: str) -> str:
    """The tokenizer with names for its special tokens that no text contains.

    Otherwise a forced text that spells one, such as a JSON key "</s>", would be written with the token itself.
    """
    description = json.loads(tokenizer_json)
    names = {}
    for token in description["added_tokens"]:
        if token["special"]:
            names[token["content"]] = token["content"] = f"{GUARD}{token['id']}{GUARD}"
    model = description["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(token, token): id_ for token, id_ in model["vocab"].items()}
    else:
        model["vocab"] = [[names.get(token, token), score] for token, score in model["vocab"]]
    description["post_processor"] = None  # it only adds special tokens around a text, and by their old names
    return json.dumps(description)


def _call_with_large_stack(function: Callable[[], Result], what: str) -> Result:
    results: list[Result] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    with _stack_size_lock:
        previous = threading.stack_size(COMPILE_STACK_BYTES)
        try:
            thread = threading.Thread(target=call, name="holotron-grammar", daemon=True)
            thread.start()
        finally:
            threading.stack_size(previous)
    thread.join(COMPILE_SECONDS)
    if thread.is_alive():
        raise GrammarError(f"{what} took more than {COMPILE_SECONDS:.0f} seconds; make it simpler")
    if errors:
        raise errors[0]
    return results[0]


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip() and not line.startswith("<")]
    reason = next((line for line in lines if line.startswith("error:")), "")
    return f"{lines[0] if lines else 'no reason given'} {reason}".strip()[:400]
