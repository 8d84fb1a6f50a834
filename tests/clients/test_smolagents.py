"""smolagents: calls that are demanded, pictures, streams, answers of a form, and its own agent."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image
from smolagents import OpenAIModel, ToolCallingAgent, tool
from smolagents.models import ChatMessage, MessageRole

SCHEMA = {"type": "object", "properties": {"x": {"enum": [7]}}, "required": ["x"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "point", "schema": SCHEMA, "strict": True}}


@tool
def click(x: int) -> str:
    """Click at a point.

    Args:
        x: how far to the right
    """
    return f"clicked at {x}"


@pytest.fixture
def model(live) -> OpenAIModel:
    return OpenAIModel("tiny", api_base=f"{live.url}/v1", api_key="any", max_tokens=200, seed=1)


@pytest.fixture
def messages(picture) -> list[ChatMessage]:
    image = Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2])))
    content = [{"type": "text", "text": "Where is it?"}, {"type": "image", "image": image}]
    return [ChatMessage(MessageRole.SYSTEM, "You click."), ChatMessage(MessageRole.USER, content)]


def test_calls_and_forms_with_a_picture(model, messages):
    answer = model.generate(messages, tools_to_call_from=[click])
    assert answer.tool_calls[0].function.name == "click"
    assert answer.token_usage.input_tokens
    assert model.generate(messages, response_format=FORM).content == '{"x":7}'


def test_streams_add_up(model, messages):
    *pieces, last = model.generate_stream(messages, stop_sequences=["Observation:"])
    assert pieces
    assert last.token_usage.output_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_its_agent_takes_steps(model, stream):
    agent = ToolCallingAgent([click], model, max_steps=2, stream_outputs=stream, verbosity_level=0)
    assert agent.run("Click somewhere.") is not None
    said = [getattr(step, "model_output_message", None) for step in agent.memory.steps]
    assert any(said)
    assert all(message.tool_calls for message in said if message is not None)
