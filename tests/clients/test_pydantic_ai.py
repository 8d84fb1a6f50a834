"""pydantic-ai: its agents over chats and responses, with tools, pictures, streams and answers of a type."""

from __future__ import annotations

import base64

import pytest
from pydantic import BaseModel, ConfigDict, Field
from pydantic_ai import Agent, BinaryContent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Point(BaseModel):
    """A point on the screen."""

    model_config = ConfigDict(extra="forbid")

    x: int = Field(ge=0, le=99)


@pytest.fixture(params=[OpenAIChatModel, OpenAIResponsesModel])
def model(live, request):
    return request.param("tiny", provider=OpenAIProvider(base_url=f"{live.url}/v1", api_key="any"))


def agent(model, **more) -> Agent:
    settings = {"max_tokens": 200, "extra_body": {"seed": 1}, "parallel_tool_calls": False}
    return Agent(model, instructions="You click.", model_settings=settings, retries=3, **more)


@pytest.mark.parametrize("output", [ToolOutput, NativeOutput])
async def test_an_answer_of_a_type(model, output, picture):
    image = BinaryContent(base64.b64decode(picture.partition(",")[2]), media_type="image/png")
    one = agent(model, output_type=output(Point))
    first = await one.run(["Where is it?", image])
    assert 0 <= first.output.x <= 99
    assert first.usage.output_tokens
    second = await one.run("And now?", message_history=first.all_messages())
    assert 0 <= second.output.x <= 99


async def test_a_stream(model):
    async with agent(model).run_stream("Hello") as run:
        assert "".join([piece async for piece in run.stream_text(delta=True)])
        assert run.usage.output_tokens
