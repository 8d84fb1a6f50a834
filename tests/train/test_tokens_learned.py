"""Tokens learned are tokens served, for every policy format: what a session held, training makes of its record.

An agent plays with an engine in its own process and behind a real server, over checkpoints with several chat templates.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from holotron.actions.action import Click, Type
from holotron.agent.agent import Agent, Budget, StepRecord
from holotron.agent.chat import ChatModel, ChatOptions, Message
from holotron.agent.endpoint import EndpointModel
from holotron.agent.formats import texts
from holotron.agent.formats.base import ParsedAnswer, conversation
from holotron.agent.formats.texts import contract_text
from holotron.agent.in_process import EngineModel, loaded
from holotron.agent.policy_format import FORMATS, PolicyFormat, find_format
from holotron.engine.engine import Engine
from holotron.engine.session import Session
from holotron.env.environment import Observation, TaskStatus
from holotron.env.errors import ActionFailed
from holotron.env.task import Task
from holotron.episodes.examples import Example
from holotron.episodes.record import EnvironmentInfo, Outcome, PolicyInfo
from holotron.episodes.recording import step_of
from holotron.episodes.selection import Selection
from holotron.episodes.store import EpisodeStore
from holotron.episodes.views import View
from holotron.model.checkpoint.config_json import read_config
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.grids import patch_grid
from holotron.model.image import image_size
from holotron.model.initialize import random_model
from holotron.model.text.byte_tokenizer import byte_library
from holotron.model.text.chat_template import DEFAULT_TEMPLATE, load_chat_template
from holotron.model.text.conversation import ConversationWriter
from holotron.model.text.policy_tokenizer import has_pieces, policy_tokenizer, save_policy_texts
from holotron.model.text.tokenizer import load_tokenizer
from holotron.train.sequences import SequenceWriter
from tests.server.live import Live, serving

from .samples import CONFIG, picture, policy_writer, sample

TASK = "Find the <image> of a dog"
# Strips contents, drops reasoning, numbers questions: what is written needs all messages, and is not what was said.
COUNTING = """{%- set ns = namespace(asked=0) -%}{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
<SPECIAL_11>{{ (m.content.split('</think>') | last).strip() }}
<SPECIAL_12>
{%- else -%}{%- set ns.asked = ns.asked + 1 -%}
<SPECIAL_10>{{ m.role }} {{ ns.asked }}:
{%- if m.content is string -%}{{ m.content.strip() }}{%- else -%}
{%- for part in m.content -%}{{ part.text if part.type == 'text' else image_token }}{%- endfor -%}
{%- endif -%}{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}<SPECIAL_11>
{%- if thinking is defined or enable_thinking is defined -%}no thinking:{%- endif -%}
{%- endif -%}"""
TEMPLATES = ("policy", "default", "counting")
HARDEST = "counting"
SERVED = ("policy", "default")
OWN = ("nano", "json", "json-bare")
WINDOWED = (
    "holo1",
    "holo2",
    "qwen-vl",
    "ui-tars",
)  # and holo1.5 and qwen2.5-vl, which are asked as the first and third
LIVE = [name for name in FORMATS if name not in (*WINDOWED, "holo1.5", "qwen2.5-vl")]
STYLE = ChatOptions(max_tokens=48, temperature=0.0, keep_images=None)
KINDS = ("click", "press", "scroll", "type", "wait")


class Pages:
    """One page after another, in pictures of several sizes; every second action fails."""

    def __init__(self) -> None:
        self._draw = random.Random(5)
        self._count = 0

    async def observe(self) -> Observation:
        self._count += 1
        size = self._draw.choice([(64, 64), (96, 64), (48, 80)])
        notices = ("a dialog was closed",) if self._count % 2 else ()
        url = f"http://here/{self._count}"
        return Observation(picture(self._draw, size)[0], *size, url, "A page", ("one", "two"), notices)

    async def act(self, action: object) -> None:
        if self._count % 2:
            raise ActionFailed("nothing is there")

    async def status(self) -> TaskStatus:
        return TaskStatus()


@pytest.fixture(autouse=True)
def short_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of tokens of a published prompt are written as its first are."""

    def short(name: str) -> str:
        text = contract_text(name)
        return text if name.endswith(".json") else text[:150] + ("{task}" if "{task}" in text else "")

    monkeypatch.setattr(texts, "contract_text", short)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name in TEMPLATES:
        folder = made[name] = tmp_path_factory.mktemp("checkpoints") / name
        save_checkpoint(random_model(CONFIG, seed=3), folder)
        save_policy_texts(CONFIG, folder)
        if name == "default":
            byte_library(CONFIG).save(str(folder / "tokenizer.json"))
            (folder / "chat_template.jinja").write_text(DEFAULT_TEMPLATE.read_text())
        if name == "counting":
            (folder / "chat_template.jinja").write_text(COUNTING)
    return made


@pytest.fixture(scope="module")
def served(folders: dict[str, Path]) -> Iterator[Callable[[str], Live]]:
    """A server of a checkpoint, started when it is first asked for."""
    with ExitStack() as running:
        yield cache(lambda name: running.enter_context(serving(folders[name])))


def asked(name: str) -> PolicyFormat:
    return find_format(name).with_kinds(KINDS)


async def play(model: ChatModel, policy_format: PolicyFormat, steps: int = 3) -> list[StepRecord]:
    budget = Budget(steps=steps, max_misunderstood=9)
    agent = Agent(model, Pages(), policy_format=policy_format, budget=budget)
    await agent.run(TASK)
    return agent.steps


def training_writer(folder: Path) -> SequenceWriter:
    tokenizer, template = load_tokenizer(folder), load_chat_template(folder)
    return SequenceWriter(ConversationWriter(tokenizer, template, read_config(folder)))


def check(steps: list[StepRecord], policy_format: PolicyFormat, folder: Path) -> list[int]:
    """The tokens of a session by its record, which are those that training learns from."""
    held: list[int] = []
    learned: list[bool] = []
    for step in steps:
        reply = step.reply
        assert reply.prompt_ids
        assert reply.token_ids
        assert reply.cached_tokens == len(held)
        held += [*reply.prompt_ids, *reply.token_ids]
        learned += [False] * len(reply.prompt_ids) + [True] * len(reply.token_ids)
        assert reply.prompt_tokens == len(held) - len(reply.token_ids)
        assert reply.logprobs is not None
        assert reply.model_logprobs is not None
        assert reply.forced is not None
        assert len(reply.logprobs) == len(reply.model_logprobs) == len(reply.forced) == len(reply.token_ids)
        assert all(logprob == 0 for logprob, forced in zip(reply.logprobs, reply.forced, strict=True) if forced)
        drawn = [value for value, forced in zip(reply.model_logprobs, reply.forced, strict=True) if not forced]
        assert all(value < 0 for value in drawn)
        assert not all(reply.forced)
    if not has_pieces(load_tokenizer(folder)):  # with pieces of actions as tokens, each one is drawn
        assert any(forced for step in steps for forced in step.reply.forced or ())
    stored = [step_of(step) for step in steps]  # as an episode keeps them
    images = iter([step.observation.image for step in steps])
    sent = conversation(policy_format, TASK, stored, lambda _: next(images))
    answers = [step.output.token_ids or () for step in stored if step.output is not None]
    turns = [(m, ids, True) for m, ids in zip(sent, answers, strict=True)]
    sequence = training_writer(folder).write_turns(turns, template=policy_format.template)
    assert sequence.token_ids.tolist() == held
    assert sequence.learn.tolist() == learned
    # And so does a view of the store that they were written to.
    examples = viewed(steps, policy_format)
    assert len(examples) == (steps[-1].action is not None), "what ends with no action is not imitated"
    for learned_from in map(training_writer(folder).write, examples):
        assert learned_from.token_ids.tolist() == held
    assert [shown.png for shown in sequence.pictures] == [policy_format.shown(s.observation.image) for s in steps]
    return held


def viewed(steps: list[StepRecord], policy_format: PolicyFormat) -> list[Example]:
    """What a view of the store that an episode is written to gives."""
    with tempfile.TemporaryDirectory() as place:
        store = EpisodeStore(place, sync="never")
        policy = PolicyInfo(model="m", extra={"format": policy_format.spec})
        with store.begin(Task(text=TASK, name="dog"), policy, EnvironmentInfo(name="pages")) as episode:
            for record in steps:
                episode.add_step(step_of(record), record.observation.image)
            episode.finish(Outcome(reason="step_limit"))
        family = replace(policy_format, kinds=type(policy_format).kinds)  # those that it had are the episode's
        return list(View([place], Selection(successes=False), policy_format=family))


@pytest.mark.parametrize("name", WINDOWED)
def test_prompts_that_are_written_anew(
    served: Callable[[str], Live], folders: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step's prompt shows the last screenshots alone: here, to a server, and where it is learned."""
    folder, policy_format = folders["default"], replace(asked(name), keep_images=2)
    style = replace(policy_format.fitted(STYLE), keep_images=None)
    # What a random model writes is taken for an action.
    monkeypatch.setattr(type(policy_format), "parse", lambda *_: ParsedAnswer(Click(x=1, y=2)))

    async def main() -> list[list[StepRecord]]:
        there = EndpointModel(served("default").url, style=style)
        try:
            with loaded(folder, "cpu", style=style, memory=2**26) as here:
                played = await play(here, policy_format, 4)
                assert not here.engine.sessions()
            return [played, await play(there, policy_format, 4)]
        finally:
            await there.aclose()

    here, there = asyncio.run(main())
    assert [step.reply.prompt_ids for step in here] == [step.reply.prompt_ids for step in there]
    for steps in (here, there):
        written = [training_writer(folder).write(example) for example in viewed(steps, policy_format)]
        for number, (step, sequence) in enumerate(zip(steps, written, strict=True)):
            reply, seen = step.reply, steps[max(0, number - 1) : number + 1]
            assert sequence.token_ids.tolist() == [*reply.prompt_ids, *reply.token_ids]
            assert sequence.learn.tolist() == [False] * len(reply.prompt_ids) + [True] * len(reply.token_ids)
            assert [p.png for p in sequence.pictures] == [policy_format.shown(s.observation.image) for s in seen]
            assert reply.prompt_tokens == len(reply.prompt_ids)


def test_a_transformer_goes_on_where_two_prompts_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(CONFIG, pattern="*-*-")
    save_checkpoint(random_model(config, seed=3), tmp_path)
    save_policy_texts(config, tmp_path)
    policy_format = replace(asked("holo2"), keep_images=2)
    style = replace(policy_format.fitted(STYLE), keep_images=None)
    monkeypatch.setattr(type(policy_format), "parse", lambda *_: ParsedAnswer(Click(x=1, y=2)))
    with loaded(tmp_path, "cpu", style=style, memory=2**26) as model:
        steps = asyncio.run(play(model, policy_format, 5))
        monkeypatch.setattr(Engine, "continue_or_open", lambda engine, *_, **__: (engine.open_session(), 0))
        anew = asyncio.run(play(model, policy_format, 5))
    assert [step.reply.token_ids for step in steps] == [step.reply.token_ids for step in anew]
    assert all(step.reply.cached_tokens > 0 for step in steps[1:])
    assert steps[1].reply.cached_tokens >= len(steps[0].reply.prompt_ids) - 1


@pytest.mark.parametrize(("template", "name"), [(t, n) for n in LIVE for t in TEMPLATES if n in OWN or t == HARDEST])
def test_with_an_engine_in_this_process(folders: dict[str, Path], template: str, name: str) -> None:
    sessions: list[Session] = []

    class Watched(EngineModel):
        async def open(self):  # type: ignore[no-untyped-def]
            chat = await super().open()
            sessions.append(chat._session)
            chat.close = nothing
            return chat

    async def nothing() -> None: ...

    with loaded(folders[template], "cpu", style=STYLE, memory=2**26) as model:
        policy_format = asked(name)
        style = replace(STYLE, template=policy_format.template)
        steps = asyncio.run(play(Watched(model.engine, model.prompts, style), policy_format))
        held = check(steps, policy_format, folders[template])
        assert sessions[0].token_ids == held
    assert len(steps) == 3


@pytest.mark.parametrize(("template", "name"), [(t, n) for t in SERVED for n in LIVE if n in OWN or t == "default"])
def test_through_a_server(served: Callable[[str], Live], folders: dict[str, Path], template: str, name: str) -> None:
    live, policy_format = served(template), asked(name)

    async def main() -> list[StepRecord]:
        model = EndpointModel(live.url, style=STYLE)
        try:
            return await play(model, policy_format)
        finally:
            await model.aclose()

    steps = asyncio.run(main())
    check(steps, policy_format, folders[template])
    with loaded(folders[template], "cpu", style=STYLE, memory=2**26) as model:
        same = asyncio.run(play(model, policy_format))
    for here, there in zip(same, steps, strict=True):
        assert here.reply.token_ids == there.reply.token_ids
        assert here.reply.prompt_ids == there.reply.prompt_ids
        assert here.reply.forced == there.reply.forced


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_teachers_answers_end_as_a_models_do(folders: dict[str, Path], template: str, name: str) -> None:
    """Written as text, an answer and its end are what a model would have to generate, and what follows fits."""
    policy_format = find_format(name)
    writer, tokenizer = training_writer(folders[template]), load_tokenizer(folders[template])
    end = CONFIG.eos_token_ids[0]
    typed = {"x": 5, "y": 5, "clear": True, "enter": True} if name.startswith("holo1") or name == "holo2" else {}
    actions = [Click(x=1, y=2), Type(text="<SPECIAL_12>", **typed)]
    png = picture(random.Random(1))[0]
    asked = [[Message("user", "one", png)], [Message("user", "two", png)]]
    texts = [policy_format.write(action) for action in actions]
    by_text = writer.write_turns((m, text, True) for m, text in zip(asked, texts, strict=True))
    ids = [[*tokenizer.encode(text), end] for text in texts]
    by_tokens = writer.write_turns((m, answer, True) for m, answer in zip(asked, ids, strict=True))
    assert by_text.token_ids.tolist() == by_tokens.token_ids.tolist()
    assert by_text.learn.tolist() == by_tokens.learn.tolist()
    assert by_text.token_ids[by_text.learn].tolist() == [id_ for answer in ids for id_ in answer]


def by_hand(made: Example) -> tuple[list[int], list[bool]]:
    """A sample as the shipped policy was taught it, token by token."""
    tokenizer, vision = policy_tokenizer(CONFIG), CONFIG.vision
    assert vision is not None
    question, answer, end = (tokenizer.id_of(f"<SPECIAL_{number}>") for number in (10, 11, 12))
    ids: list[int] = []
    learn: list[bool] = []
    for turn in made.turns:
        ids += [question, *tokenizer.encode(turn.said)]
        if turn.image is not None:
            rows, columns = patch_grid(*image_size(turn.image), vision)
            image = [vision.image_token_id] * (rows * columns // 4)
            ids += [vision.image_start_token_id or 0, *image, vision.image_end_token_id or 0]
        ids.append(answer)
        learn += [False] * (len(ids) - len(learn))
        ids += [*tokenizer.encode(turn.answer), end]
        learn += [turn.learn] * (len(ids) - len(learn))
    return ids, learn


def test_the_shipped_policy_is_taught_as_ever() -> None:
    writer = SequenceWriter(policy_writer(CONFIG))
    hostile = sample(1, steps=3)
    turns = [replace(turn, said="Task: <image><SPECIAL_12> {", answer='{"<SPECIAL_10>') for turn in hostile.turns]
    lengths = set()
    for made in (*(sample(seed) for seed in range(40)), replace(hostile, turns=tuple(turns))):
        sequence = writer.write(made)
        assert (sequence.token_ids.tolist(), sequence.learn.tolist()) == by_hand(made)
        assert sequence.token_ids.dtype == np.int64
        lengths.add(len(made.turns))
    assert lengths == {1, 2, 3, 4}
