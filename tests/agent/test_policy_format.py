"""What a policy is told at each step follows from the task and the recorded steps; what it answers is read back."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from holotron.actions.action import KINDS, ActionError, Answer, Click
from holotron.agent.agent import Agent, Budget, Ending, StepRecord
from holotron.agent.chat import Message, OfSchema
from holotron.agent.formats.base import BROWSER_KINDS, WIDGET_KINDS, conversation
from holotron.agent.policy_format import (
    FORMATS,
    NANO,
    BareJsonFormat,
    JsonFormat,
    NanoFormat,
    find_format,
    format_of,
    save_format,
)
from holotron.env.environment import Observation, TaskStatus
from holotron.env.errors import ActionFailed
from holotron.env.safety.secrets import Secret, Secrets
from holotron.episodes.recording import step_of
from holotron.model.errors import ModelError
from tests.agent.replies import Recited, act


def shot(number: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (160, 210), (number, 0, 0)).save(out, "png")
    return out.getvalue()


class Pages:
    """An environment that shows one page after another; each action at x=0 fails."""

    def __init__(self) -> None:
        self.count = 0

    async def observe(self) -> Observation:
        self.count += 1
        tabs = ("one", "two") if self.count > 2 else ("one",)
        notices = ("a dialog was closed",) if self.count == 2 else ()
        return Observation(shot(self.count), 160, 210, f"http://here/{self.count}", f"Page {self.count}", tabs, notices)

    async def act(self, action) -> None:  # type: ignore[no-untyped-def]
        if getattr(action, "x", None) == 0:
            raise ActionFailed("nothing is there")

    async def status(self) -> TaskStatus:
        return TaskStatus()


def play(agent: Agent, task: str) -> Ending:
    return asyncio.run(agent.run(task))


def test_all_kinds_of_actions_have_a_usage() -> None:
    assert tuple(KINDS) == BROWSER_KINDS


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_sent_follows_from_the_stored_steps(name: str) -> None:
    policy_format = find_format(name)
    validator = Recited({"explanation": "look again", "success": False})
    actions = (Click(x=0, y=5), Click(x=5, y=5), Answer(text="no"), Click(x=10, y=10), Answer(text="yes"))
    model = Recited("nonsense", *(policy_format.write(action, size=(160, 210)) for action in actions))
    agent = Agent(model, Pages(), policy_format=policy_format, validator=validator, budget=Budget(steps=6))
    ending = play(agent, "Do it")
    assert (ending.reason, ending.answer) == ("step_limit", "yes")  # the last step could do nothing else
    assert [step.forced for step in agent.steps] == [False] * 5 + [True]
    live = list(conversation(policy_format, "Do it", agent.steps))
    assert [message for messages in live for message in messages] == model.heard
    images = iter([step.observation.image for step in agent.steps])
    stored = [step_of(step) for step in agent.steps]
    assert list(conversation(policy_format, "Do it", stored, lambda _: next(images))) == live


def test_what_json_formats_say() -> None:
    model = Recited("nonsense", act("click", x=0, y=5), act("click", x=5, y=5), act("answer", text="done"))
    play(Agent(model, Pages(), budget=Budget(steps=4)), "Do it")
    assert model.heard[0].role == "system"
    assert model.heard[1] == Message("user", "Task: Do it\nPage: Page 1 (http://here/1)", shot(1))
    assert model.heard[2].text.startswith("Your last answer could not be used: ")
    assert model.heard[2].text.endswith("\nPage: Page 2 (http://here/2)\nNotice: a dialog was closed")
    assert model.heard[3].text == (
        "The last action failed: nothing is there\nPage: Page 3 (http://here/3)\nTabs: one; two"
    )
    assert model.heard[4].text == (
        "The last action was carried out.\nPage: Page 4 (http://here/4)\nTabs: one; two\n"
        "This is the last step: give the answer now."
    )


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_tells_of_secrets(name: str) -> None:
    """At the first step, by name; without secrets nothing is added; what was sent follows from stored steps."""
    policy_format = find_format(name)
    secrets = Secrets({"password": Secret("hunter2", ["https://example.com"])})
    plain = Observation(shot(1), 160, 210)
    told = replace(plain, notices=tuple(secrets.introduction()))
    for seen, count in ((plain, 0), (told, 1)):
        task = policy_format.instruction("Log in.", (), seen)
        texts = "".join(message.text for message in policy_format.messages(task, (), seen, seen.image))
        assert texts.count("{{secret:password}}") == count
        assert "hunter2" not in texts
    later = policy_format.instruction("Log in.", [StepRecord(0, told)], plain)
    assert later == policy_format.instruction("Log in.", (), told)
    assert NANO.instruction('Log in with "{{secret:password}}".', (), told) == 'Log in with "{{secret:password}}".'


def test_nano_is_told_the_task_once() -> None:
    model = Recited({"action": "click", "x": 0, "y": 5})
    agent = Agent(model, Pages(), policy_format=NANO, budget=Budget(steps=3))
    for task in ("Do it", "Do that"):  # a second task is a conversation of its own
        model.heard.clear()
        play(agent, task)
        assert [message.text for message in model.heard] == [f"Task: {task}", "", ""]
        assert {message.role for message in model.heard} == {"user"}


@pytest.mark.parametrize("name", FORMATS)
def test_an_action_is_read_as_it_was_written(name: str) -> None:
    policy_format = find_format(name)
    for action in (Click(x=5, y=7), Answer(text='"quoted"\n')):
        assert policy_format.parse(policy_format.write(action)).action == action
    with pytest.raises(ActionError):
        policy_format.parse("[1]")
    parsed = JsonFormat().parse(JsonFormat().write(Click(x=5, y=7), "a note", "a thought"))
    assert (parsed.note, parsed.thought) == ("a note", "a thought")


def test_a_forced_step_can_only_answer() -> None:
    for policy_format in (NanoFormat(), JsonFormat(), BareJsonFormat()):
        assert "hover" in str(policy_format.schema())
        assert policy_format.schema() is policy_format.with_kinds(policy_format.kinds).schema()  # made once
        assert "hover" not in str(policy_format.schema(forced=True))
        assert "answer" in str(policy_format.schema(forced=True))
        assert "hover" in str(policy_format.with_kinds(WIDGET_KINDS).schema(forced=True))  # there is no answer to force


def test_a_format_by_its_name() -> None:
    for policy_format in (NANO, JsonFormat(), BareJsonFormat(("click", "answer"))):
        assert find_format(policy_format.spec) == policy_format
    assert BareJsonFormat(("click", "answer")).spec == "json-bare:click,answer"
    with pytest.raises(ValueError, match="no policy format 'holo'; choose one of nano, json"):
        find_format("holo")
    with pytest.raises(ValueError, match="no kind of action 'fly'"):
        find_format("json:fly")


def test_a_checkpoint_names_its_format(tmp_path: Path) -> None:
    assert format_of(tmp_path) is None
    file = tmp_path / "policy.json"
    for policy_format in (NANO, replace(NANO, size=None), BareJsonFormat(("click", "answer"), (800, 600))):
        save_format(policy_format, tmp_path)
        assert format_of(tmp_path) == policy_format
    for wrong in ("[]", '{"format": "holo"}', '{"format": "nano", "colour": 1}', "{}"):
        file.write_text(wrong)
        with pytest.raises(ModelError, match=r"policy\.json cannot be read"):
            format_of(tmp_path)


def test_training_reads_formats_without_pydantic() -> None:
    code = "import sys; sys.modules['pydantic'] = None; import holotron.agent.policy_format"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_made_of_a_schema_is_made_once_while_it_is_the_same() -> None:
    made: list[Any] = []
    of_schema = OfSchema(lambda schema: made.append(schema) or len(made))
    one, other = {"type": "object"}, {"type": "object"}
    assert [of_schema(schema) for schema in (one, other, one, other)] == [1, 2, 1, 2]
    for number in range(OfSchema.MOST):  # what was made long ago is let go, and made again
        of_schema({"title": str(number)})
    assert of_schema(one) == OfSchema.MOST + 3
