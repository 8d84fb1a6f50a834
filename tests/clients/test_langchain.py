"""langchain-openai: bound tools, structured output, pictures and streams."""

from __future__ import annotations

import pytest
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

from .toolbox import TOOLS, parts


class Point(BaseModel):
    """A point on the screen."""

    x: int = Field(ge=0, le=99)


@pytest.fixture
def model(live) -> ChatOpenAI:
    return ChatOpenAI(model="tiny", base_url=f"{live.url}/v1", api_key="any", max_tokens=200, seed=1, max_retries=0)


def test_tools_over_several_turns(model, picture):
    messages = [SystemMessage("You click."), HumanMessage(parts("What is this?", picture))]
    for forced in ("required", "none", "auto"):
        answer = model.bind_tools(TOOLS, tool_choice=forced).invoke(messages)
        messages.append(answer)
        messages += [ToolMessage("done", tool_call_id=call["id"]) for call in answer.tool_calls]
        messages.append(HumanMessage("And now?"))
    assert messages[2].tool_calls[0]["name"] == "click"


def test_streams_add_up(model):
    whole = None
    for chunk in model.stream([HumanMessage("Hello")], stream_usage=True):
        whole = chunk if whole is None else whole + chunk
    assert whole.usage_metadata["output_tokens"]
    assert model.invoke([HumanMessage("Hello"), whole, HumanMessage("More")]).content is not None


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(model, method):
    assert 0 <= model.with_structured_output(Point, method=method).invoke("Where?").x <= 99
