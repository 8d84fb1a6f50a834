"""Templates write what they are told and nothing else; the tokenizer tells markup from text."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from holotron.model.errors import ModelError
from holotron.model.text.chat_template import DEFAULT_TEMPLATE, ChatTemplate, load_chat_template
from holotron.model.text.tokenizer import GUARD, Tokenizer, load_tokenizer

SPECIAL = ["<s>", "<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "<image>", "<img>", "</img>"]
TAGS = ["<think>", "</think>"]
SENTENCES = [
    "Click the button that says hello.",
    "User and Assistant and System",
    "special image think 0123456789 <>/_",
]


@lru_cache
def toy_tokenizer() -> tokenizers.Tokenizer:
    toy = tokenizers.Tokenizer(models.BPE())
    toy.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    toy.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False
    )
    toy.train_from_iterator(SENTENCES * 5, trainer)
    toy.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    toy.add_tokens([AddedToken("   ", special=False, normalized=False)])
    return toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint")
    toy_tokenizer().save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate(DEFAULT_TEMPLATE.read_text())


def say(role: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


# ---- any template ------------------------------------------------------------------------------------------------


def test_helpers_that_templates_expect() -> None:
    source = (
        "{{ bos_token }}"
        "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.content }};{% endfor %}"
        "{{ {'b': '<&é', 'a': [1]} | tojson }}{{ strftime_now('%Y') | length }}"
        "{% generation %}{{ colour }}{% endgeneration %}"
    )
    rendered = ChatTemplate(source, bos_token="<s>").render([say("user", c) for c in "xyz"], colour="blue")
    assert rendered == '<s>x;y;{"b": "<&é", "a": [1]}4blue'


def test_json_can_be_indented() -> None:
    assert ChatTemplate("{{ tools | tojson(indent=1) }}").render([], [{"a": 1}]) == '[\n {\n  "a": 1\n }\n]'


def test_block_lines_leave_no_trace() -> None:
    assert ChatTemplate("a\n  {% if true %}\nb\n  {% endif %}\nc").render([]) == "a\nb\nc"


def test_what_the_template_says_is_the_error() -> None:
    with pytest.raises(ModelError, match="refuses this conversation: roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}").render([])


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ '%s'|attr('__class__') ~ ''.format.__self__.__class__.__base__.__subclasses__() }}",
        "{{ range(10**9) | list }}",
        "{{ messages.x.y }}",
        "{{ 1 + 'a' }}",
        "{{ 1 / 0 }}",
        "{% include 'other' %}",
    ],
)
def test_hostile_and_broken_templates_are_refused(source: str) -> None:
    with pytest.raises(ModelError):
        ChatTemplate(source).render([say("user", "x")])


def test_syntax_errors_name_the_line() -> None:
    with pytest.raises(ModelError, match="broken at line 2"):
        ChatTemplate("\n{% if %}")


# ---- the default template ----------------------------------------------------------------------------------------


def test_plain_conversation(template: ChatTemplate) -> None:
    messages = [say("system", "Be brief."), say("user", "Hi"), say("assistant", "Hello."), say("user", "Bye")]
    assert template.render(messages) == (
        "<s><SPECIAL_10>System\nBe brief.\n<SPECIAL_11>User\nHi\n<SPECIAL_11>Assistant\n<think></think>Hello."
        "<SPECIAL_12>\n<SPECIAL_11>User\nBye\n<SPECIAL_11>Assistant\n<think></think>"
    )


def test_thinking_is_a_choice(template: ChatTemplate) -> None:
    assert template.render([say("user", "Hi")], enable_thinking=True).endswith("<SPECIAL_11>Assistant\n<think>\n")
    assert template.render([say("user", "Hi")], add_generation_prompt=False).endswith("User\nHi\n")


def test_system_part_is_there_without_a_system_message(template: ChatTemplate) -> None:
    assert template.render([say("user", "Hi")], add_generation_prompt=False) == (
        "<s><SPECIAL_10>System\n\n<SPECIAL_11>User\nHi\n"
    )


def test_tools_calls_and_results(template: ChatTemplate) -> None:
    tools = [{"type": "function", "function": {"name": "click", "description": "a < b"}}, {"name": "bare"}]
    calls = [
        {"type": "function", "id": "1", "function": {"name": "click", "arguments": '{"x":1}'}},
        {"name": "type", "arguments": {"z": "é", "a": 2}},
    ]
    messages = [
        say("user", "Do"),
        say("assistant", None, tool_calls=calls),
        say("tool", 'said "ok"'),
        say("tool", [{"type": "text", "text": "seen "}, {"type": "image"}]),
        say("user", "Go on"),
    ]
    assert template.render(messages, tools) == (
        '<s><SPECIAL_10>System\n\n<AVAILABLE_TOOLS>[{"name": "click", "description": "a < b"}, {"name": "bare"}]'
        "</AVAILABLE_TOOLS>\n<SPECIAL_11>User\nDo\n<SPECIAL_11>Assistant\n<think></think>"
        '<TOOLCALL>[{"name": "click", "arguments": {"x":1}}, {"name": "type", "arguments": {"z": "é", "a": 2}}]'
        "</TOOLCALL><SPECIAL_12>\n"
        '<SPECIAL_11>User\n<TOOL_RESPONSE>["said \\"ok\\"", "seen <image>"]</TOOL_RESPONSE>\n'
        "<SPECIAL_11>User\nGo on\n<SPECIAL_11>Assistant\n<think></think>"
    )


def test_image_parts_become_place_holders(template: ChatTemplate) -> None:
    parts = [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": " and "}, {"type": "image"}]
    assert "User\n<image> and <image>\n" in template.render([say("user", parts)])
    assert "User\n[i] and [i]\n" in template.render([say("user", parts)], image_token="[i]")


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([say("user", "a"), say("system", "b")], "a system message must be the first"),
        ([say("robot", "a")], "role robot; known are"),
        ([say("user", [{"type": "audio"}])], "type audio"),
        ([say("user", 5)], "content must be"),
    ],
)
def test_default_template_refuses_what_it_cannot_write(
    template: ChatTemplate, messages: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        template.render(messages)


PARTS = st.lists(
    st.one_of(st.builds(lambda t: {"type": "text", "text": t}, st.text(max_size=8)), st.just({"type": "image"})),
    max_size=3,
)
ANSWERS = st.one_of(
    st.text(max_size=12), st.builds("{}</think>{}".format, st.text(max_size=5), st.text(max_size=5)), st.just("  \n")
)
CALLS = st.lists(st.fixed_dictionaries({"name": st.text(max_size=4), "arguments": st.just({"a": 1})}), max_size=2)
TURNS = st.one_of(
    st.builds(lambda c: [say("user", c)], st.one_of(st.text(max_size=12), PARTS)),
    st.builds(lambda c, calls: [say("assistant", c, tool_calls=calls)], ANSWERS, CALLS),
    st.builds(
        lambda texts: [say("tool", text) for text in texts], st.lists(st.text(max_size=8), min_size=1, max_size=3)
    ),
)


@given(st.booleans(), st.booleans(), st.lists(TURNS, min_size=2, max_size=6))
def test_fewer_turns_are_a_strict_prefix_of_more(
    template: ChatTemplate, system: bool, thinking: bool, turns: list[list[dict[str, Any]]]
) -> None:
    if any(one[0]["role"] == other[0]["role"] == "tool" for one, other in pairwise(turns)):
        return  # neighbouring tool results are one turn
    before = [say("system", "S")] if system else []
    texts = []
    for count in range(1, len(turns) + 1):
        messages = before + [message for turn in turns[:count] for message in turn]
        texts.append(template.render(messages, add_generation_prompt=False, enable_thinking=thinking))
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter)
        assert len(longer) > len(shorter)


@given(st.booleans(), st.text(max_size=20), st.text(max_size=20))
def test_answer_is_written_back_as_it_was_generated(
    template: ChatTemplate, thinking: bool, reasoning: str, answer: str
) -> None:
    generated = f"{reasoning}</think>{answer}" if thinking else answer
    asked = [say("user", "Hi")]
    prompt = template.render(asked, enable_thinking=thinking)
    done = template.render([*asked, say("assistant", generated)], add_generation_prompt=False)
    assert done == prompt + generated + "<SPECIAL_12>\n"
    if thinking:
        split = say("assistant", answer, reasoning_content=reasoning)
        assert not reasoning or template.render([*asked, split], add_generation_prompt=False) == done


# ---- where templates and tokenizers are found --------------------------------------------------------------------


def test_template_is_found_wherever_a_checkpoint_keeps_it(tmp_path: Path) -> None:
    assert load_chat_template(tmp_path).render([say("user", "Hi")]).startswith("<s><SPECIAL_10>")
    settings: dict[str, Any] = {"bos_token": {"content": "<B>"}, "eos_token": "<E>", "pad_token": None}
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps(settings))
    assert load_chat_template(tmp_path).render([say("user", "Hi")]).startswith("<B><SPECIAL_10>")
    named = [{"name": "rag", "template": "no"}, {"name": "default", "template": "{{ bos_token }}named"}]
    config.write_text(json.dumps({**settings, "chat_template": named}))
    assert load_chat_template(tmp_path).render([]) == "<B>named"
    config.write_text(json.dumps({**settings, "chat_template": "{{ bos_token }}{{ eos_token }}"}))
    assert load_chat_template(tmp_path).render([]) == "<B><E>"
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "{{ eos_token }}json"}))
    assert load_chat_template(tmp_path).render([]) == "<E>json"
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}é", encoding="utf-8")
    assert load_chat_template(tmp_path).render([]) == "<B>é"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tokenizer_config.json", "{", "tokenizer_config.json is not valid JSON"),
        ("tokenizer_config.json", "[]", "holds a list"),
        ("tokenizer_config.json", '{"chat_template": 5}', "is a int; it must be text"),
        ("tokenizer_config.json", '{"chat_template": [{"name": "rag", "template": ""}]}', r"\['rag'\] and none"),
        ("chat_template.json", "nonsense", "chat_template.json is not valid JSON"),
        ("chat_template.jinja", "{% if %}", "broken at line 1"),
    ],
)
def test_broken_template_files_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match=message):
        load_chat_template(tmp_path)


def test_missing_and_broken_tokenizers_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json is missing"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        load_tokenizer(tmp_path)


# ---- the tokenizer -----------------------------------------------------------------------------------------------

PIECES = st.one_of(
    st.sampled_from(
        [*SPECIAL, *TAGS, "<", "<SPEC", "IAL_12>", "</", "img>", "   ", GUARD, "\ufdd1", "\ufdd2", "é", "\n"]
    ),
    st.text(max_size=6),
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


def test_ids_and_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.id_of("<image>") == SPECIAL.index("<image>")
    assert tokenizer.token_of(0) == "<s>"
    assert tokenizer.vocab_size == toy_tokenizer().get_vocab_size()
    with pytest.raises(ModelError, match="no token '<nothing>'"):
        tokenizer.id_of("<nothing>")
    with pytest.raises(ModelError, match="id 99999"):
        tokenizer.token_of(99999)


@given(TEXTS)
def test_encoding_with_markup_is_what_the_library_does(tokenizer: Tokenizer, text: str) -> None:
    text = text.replace(GUARD, "")
    assert tokenizer.encode(text, allow_special=True) == toy_tokenizer().encode(text, add_special_tokens=False).ids


@given(TEXTS)
def test_encoding_without_markup_makes_none_and_loses_nothing(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert not set(ids) & set(tokenizer.markup.values())
    assert tokenizer.decode(ids) == text


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_protected_texts_stay_text_even_side_by_side(tokenizer: Tokenizer, texts: list[str]) -> None:
    together = "".join(map(tokenizer.protect, texts))
    assert tokenizer.encode(together, allow_special=True) == tokenizer.encode("".join(texts))


@given(TEXTS, TEXTS)
def test_markup_between_protected_texts_stays_markup(tokenizer: Tokenizer, before: str, after: str) -> None:
    text = tokenizer.protect(before) + "<SPECIAL_12>" + tokenizer.protect(after)
    expected = [*tokenizer.encode(before), tokenizer.id_of("<SPECIAL_12>"), *tokenizer.encode(after)]
    assert tokenizer.encode(text, allow_special=True) == expected


def test_text_without_markup_is_not_touched_by_protection(tokenizer: Tokenizer) -> None:
    for text in ("", "Click 3 < 5 and /no_think", "a > b", "<b>bold</b> [x]", "  spaces \n"):
        assert tokenizer.protect(text) == text


def test_kept_markup_stays_markup(tokenizer: Tokenizer) -> None:
    text = tokenizer.protect("<think>x</think><s>", keep=TAGS)
    ids = tokenizer.encode(text, allow_special=True)
    assert ids[0] == tokenizer.id_of("<think>")
    assert tokenizer.id_of("</think>") in ids
    assert tokenizer.id_of("<s>") not in ids


def test_added_words_that_are_no_tags_are_found_in_any_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.id_of("   ") in tokenizer.encode("a   b")


def test_decoding_hides_special_tokens_but_not_tags(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<s><think>Hi</think><SPECIAL_12>", allow_special=True)
    assert tokenizer.decode(ids) == "<think>Hi</think>"
    assert tokenizer.decode(ids, skip_special=False) == "<s><think>Hi</think><SPECIAL_12>"
    assert tokenizer.decode([]) == ""


def test_half_a_surrogate_pair_is_replaced(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a\ud83d")) == "a\ufffd"
    assert tokenizer.decode(tokenizer.encode("\ud83d\ude00")) == "\U0001f600"


def test_vocabulary_that_knows_markup_as_a_word_cannot_forge_it(tmp_path: Path) -> None:
    words = tokenizers.Tokenizer(models.BPE({"a": 0, "<": 1, "s": 2, ">": 3, "<s>": 4}, [], ignore_merges=True))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(["<s>"])
    words.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).encode("a <s>") == [0, 1, 2, 3]
    assert load_tokenizer(tmp_path).encode("a <s>", allow_special=True) == [0, 4]


def test_markup_that_eats_spaces_eats_them(tmp_path: Path) -> None:
    toy = tokenizers.Tokenizer.from_str(toy_tokenizer().to_str())
    toy.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, special=True, normalized=False)])
    toy.save(str(tmp_path / "tokenizer.json"))
    text = "a  <mask>\n b<s> c <mask>"
    assert load_tokenizer(tmp_path).encode(text, allow_special=True) == toy.encode(text, add_special_tokens=False).ids
