"""openai-agents: its loop over responses and over chats, with tools, pictures, streams and answers of a type."""

from __future__ import annotations

import openai
import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from pydantic import BaseModel, ConfigDict, Field

set_tracing_disabled(True)
clicked: list[int] = []
CALL = {"tool_choice": "required", "extra_body": None}


class Point(BaseModel):
    """A point on the screen."""

    model_config = ConfigDict(extra="forbid")

    x: int = Field(ge=0, le=99)


@function_tool
def click(x: int) -> str:
    """Click at a point."""
    clicked.append(x)
    return f"clicked at {x}"


@pytest.fixture(params=[OpenAIResponsesModel, OpenAIChatCompletionsModel])
def model(live, request):
    client = openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0)
    return request.param(model="tiny", openai_client=client)


def agent(model, **more) -> Agent:
    """Of what it says in words, four letters: it takes an answer that was cut off for a failure."""
    words = {"structured_outputs": {"regex": "[a-z]{4}"}}
    settings = {"max_tokens": 200, "parallel_tool_calls": False, "extra_body": words} | more.pop("settings", {})
    return Agent("clicker", instructions="You click.", model=model, model_settings=ModelSettings(**settings), **more)


def question(picture: str) -> list:
    parts = [{"type": "input_text", "text": "Where is it?"}, {"type": "input_image", "image_url": picture}]
    return [{"role": "user", "content": parts}]


async def test_a_call_is_made_and_its_result_goes_back(model, picture):
    clicked.clear()
    one = agent(model, tools=[click], settings=CALL, tool_use_behavior="stop_on_first_tool")
    result = await Runner.run(one, question(picture))
    assert result.final_output == f"clicked at {clicked[-1]}"
    again = await Runner.run(agent(model), [*result.to_input_list(), {"role": "user", "content": "And now?"}])
    assert len(again.final_output) == 4


async def test_a_stream(model):
    settings = CALL | {"include_usage": True}
    one = agent(model, tools=[click], settings=settings, tool_use_behavior="stop_on_first_tool")
    run = Runner.run_streamed(one, "Click.")
    kinds = {event.type async for event in run.stream_events()}
    assert {"raw_response_event", "run_item_stream_event"} <= kinds
    assert run.final_output.startswith("clicked")
    assert run.context_wrapper.usage.output_tokens


async def test_an_answer_of_a_type(model, picture):
    result = await Runner.run(agent(model, output_type=Point, settings={"extra_body": None}), question(picture))
    assert 0 <= result.final_output.x <= 99


async def test_a_chain_of_responses(live):
    client = openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0)
    one = agent(OpenAIResponsesModel(model="tiny", openai_client=client), settings={"truncation": "auto"})
    first = await Runner.run(one, "Hello")
    second = await Runner.run(one, "And now?", previous_response_id=first.last_response_id)
    read = second.raw_responses[0].usage
    assert read.input_tokens_details.cached_tokens >= first.raw_responses[0].usage.total_tokens - 1
