"""What users of other servers rely on, by OpenAI's client: shapes of streams and log-probabilities, limits, errors."""

from __future__ import annotations

import itertools

import openai
import pytest

from .test_openai_client import ask

PROMPT = "The capital"  # one token a letter
BANNED, FORCED = -100, 100
SOME_TOKEN = 65
VOCABULARY = 288


@pytest.fixture(scope="module")
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def complete(client, prompt=PROMPT, **more):
    more = {"max_tokens": 4, "temperature": 0, "model": "tiny"} | more
    return client.completions.create(prompt=prompt, **more)


def test_log_probabilities_are_told_as_asked(client):
    assert ask(client).choices[0].logprobs is None
    for count in (0, 5, 20):
        (first, *_) = ask(client, logprobs=True, top_logprobs=count).choices[0].logprobs.content
        assert len(first.top_logprobs) == count
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="top_logprobs"):
            ask(client, logprobs=True, top_logprobs=21, stream=stream)
        with pytest.raises(openai.BadRequestError, match="logprobs"):
            complete(client, logprobs=21, stream=stream)
    assert complete(client).choices[0].logprobs is None
    assert len(complete(client, logprobs=0).choices[0].logprobs.top_logprobs[0]) == 1  # the one that was drawn


@pytest.mark.parametrize("count", [1, 2])
def test_a_chat_stream_has_a_role_text_and_one_end_for_each_choice(client, count):
    told = {number: [] for number in range(count)}
    stream = ask(client, stream=True, n=count, temperature=1, logprobs=True, top_logprobs=2, max_tokens=30)
    for chunk in stream:
        assert chunk.usage is None
        (choice,) = chunk.choices
        told[choice.index].append(choice)
    for choices in told.values():
        assert [choice.delta.role for choice in choices] == ["assistant"] + [None] * (len(choices) - 1)
        assert [choice.finish_reason for choice in choices[:-1]] == [None] * (len(choices) - 1)
        assert choices[-1].finish_reason in ("stop", "length")
        for choice in choices[1:-1]:  # also of a token that has no text yet
            assert isinstance(choice.delta.content, str)
            assert len(choice.logprobs.content[0].top_logprobs) == 2


@pytest.mark.parametrize("kind", ["chat", "text"])
def test_usage_in_a_stream_is_told_as_asked(client, kind):
    def usages(**options):
        more = {"stream": True, "stream_options": options}
        return [chunk.usage for chunk in (ask(client, **more) if kind == "chat" else complete(client, **more))]

    assert not any(usages(include_usage=False))
    assert not any(usages(include_usage=False, continuous_usage_stats=True))
    assert not any(usages())
    *others, last = usages(include_usage=True)
    assert not any(others)
    assert last.total_tokens == last.prompt_tokens + last.completion_tokens > 0
    assert all(usages(include_usage=True, continuous_usage_stats=True))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("in_tokens", [False, True])
def test_prompts_answers_echo_and_log_probabilities_go_together(client, live, stream, in_tokens):
    prompt = live.state.texts.tokenizer.encode(PROMPT) if in_tokens else PROMPT
    for echo, logprobs, several, count in itertools.product([False, True], [None, 2], [False, True], [1, 2]):
        more = {"echo": echo, "logprobs": logprobs, "n": count, "seed": 7, "temperature": 1}
        more |= {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        answer = complete(client, [prompt, prompt] if several else prompt, **more)
        texts, tokens = {}, {}
        for part in answer if stream else [answer]:
            usage = part.usage
            for choice in part.choices:
                texts[choice.index] = texts.get(choice.index, "") + choice.text
                tokens.setdefault(choice.index, []).extend(choice.logprobs.tokens if choice.logprobs else [])
        assert sorted(texts) == list(range(count * (2 if several else 1)))
        assert usage.prompt_tokens == len(PROMPT) * (2 if several else 1)
        assert usage.completion_tokens == 4 * len(texts)
        for index, text in texts.items():
            assert text.startswith(PROMPT) == echo
            assert len(tokens[index]) == (0 if logprobs is None else 4 + len(PROMPT) * echo)
        assert len({texts[index] for index in range(count)}) == count  # each choice has a seed of its own
        if several:
            assert [texts[index] for index in range(count)] == [texts[count + index] for index in range(count)]


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_is_neither_told_nor_passed(client, stream):
    form = {"structured_outputs": {"regex": "one, two; three"}}
    for stop, text, found in ((", ", "one", ", "), ([";", "three"], "one, two", ";"), (["x"], "one, two; three", None)):
        answer = ask(client, stop=stop, stream=stream, max_tokens=40, extra_body=form)
        if stream:
            pieces = [chunk.choices[0].delta.content or "" for chunk in answer]
            assert "".join(pieces) == text
        else:
            assert answer.choices[0].message.content == text
            assert answer.choices[0].finish_reason == "stop"
            if found is not None:
                assert answer.choices[0].stop_reason == found


def test_a_seed_repeats_an_answer(client):
    first, again = (ask(client, temperature=1, seed=5, max_tokens=20) for _ in range(2))
    other = ask(client, temperature=1, seed=6, max_tokens=20)
    said = [answer.choices[0].message.content for answer in (first, again, other)]
    assert said[0] == said[1] != said[2]
    for seed in (2**63, -(2**63) - 1):
        with pytest.raises(openai.BadRequestError, match="seed"):
            ask(client, seed=seed)


def test_a_bias_forces_and_bans_tokens(client):
    body = {"return_token_ids": True, "ignore_eos": True}
    forced = ask(client, logit_bias={str(SOME_TOKEN): FORCED}, extra_body=body).choices[0]
    assert set(forced.token_ids) == {SOME_TOKEN}
    banned = {str(id_): BANNED for id_ in range(VOCABULARY) if id_ not in (SOME_TOKEN, SOME_TOKEN + 1)}
    assert set(ask(client, logit_bias=banned, temperature=1, extra_body=body).choices[0].token_ids) <= {
        *(SOME_TOKEN, SOME_TOKEN + 1)
    }
    for bias, words in (
        ({str(VOCABULARY + 1): 1}, ("logit_bias", str(VOCABULARY + 1), str(VOCABULARY))),
        ({"not_a_token": 1}, ("logit_bias", "not_a_token")),
        ({"1": "much"}, ("logit_bias",)),
        ({"1": 101}, ("logit_bias",)),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            ask(client, logit_bias=bias)
        assert all(word in str(refused.value) for word in words), refused.value


def test_lengths_are_kept_or_refused(client, live):
    for limit in ("max_tokens", "max_completion_tokens"):
        answer = ask(client, **({"max_tokens": None} | {limit: 3}), extra_body={"ignore_eos": True})
        assert answer.usage.completion_tokens == 3
        assert answer.choices[0].finish_reason == "length"
        with pytest.raises(openai.BadRequestError, match=limit):
            ask(client, **({"max_tokens": None} | {limit: 0}))
    assert (
        ask(client, max_tokens=9, max_completion_tokens=2, extra_body={"ignore_eos": True}).usage.completion_tokens == 2
    )
    assert ask(client, max_tokens=9, extra_body={"min_tokens": 9}).usage.completion_tokens == 9
    for make in (lambda: ask(client, max_tokens=live.state.max_context), lambda: ask(client, "a" * 5000)):
        with pytest.raises(openai.BadRequestError) as refused:
            make()
        assert refused.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("make", "status", "field"),
    [
        (lambda client: ask(client, model="nobody"), 404, "model"),
        (lambda client: client.models.retrieve("nobody"), 404, "model"),
        (lambda client: ask(client, temperature=-1), 400, "temperature"),
        (lambda client: ask(client, top_p=0), 400, "top_p"),
        (lambda client: ask(client, n=0), 400, "n"),
        (lambda client: ask(client, logprobs=True, top_logprobs=-1), 400, "top_logprobs"),
        (lambda client: ask(client, extra_body={"prompt_logprobs": -1}), 400, "prompt_logprobs"),
        (lambda client: ask(client, tool_choice="required"), 400, "tool_choice"),
        (lambda client: ask(client, response_format={"type": "json_schema"}), 400, "response_format"),
        (lambda client: client.chat.completions.create(model="tiny", messages=[]), 400, "messages"),
        (
            lambda client: client.chat.completions.create(model="tiny", messages=[{"role": "me"}]),
            400,
            "messages.0.role",
        ),
        (lambda client: complete(client, []), 400, "prompt"),
        (lambda client: complete(client, ""), 400, "prompt"),
        (lambda client: complete(client, [VOCABULARY + 1]), 400, "prompt"),
        (
            lambda client: complete(client, extra_body={"structured_outputs": {"regex": "[.*"}}),
            400,
            "structured_outputs",
        ),
    ],
)
def test_errors_have_openais_shape(client, make, status, field):
    with pytest.raises(openai.APIStatusError) as refused:
        make(client)
    error = refused.value
    assert error.status_code == status
    assert error.body.keys() == {"message", "type", "param", "code"}
    assert error.type == "invalid_request_error"
    assert field in error.param
    assert client.models.retrieve("tiny").id == "tiny"  # and it goes on
