"""browser-use: the requests that its agents make, with screenshots and answers of a type."""

from __future__ import annotations

import asyncio

import pytest
from browser_use.llm import AssistantMessage, ChatOpenAI, SystemMessage, UserMessage
from browser_use.llm.messages import ContentPartImageParam, ContentPartTextParam, ImageURL
from pydantic import BaseModel, ConfigDict, Field


class Step(BaseModel):
    """One step."""

    model_config = ConfigDict(extra="forbid")

    x: int = Field(ge=0, le=99)


@pytest.fixture
def model(live) -> ChatOpenAI:
    return ChatOpenAI(model="tiny", base_url=f"{live.url}/v1", api_key="any", max_completion_tokens=200, max_retries=0)


def test_steps_with_screenshots(model, picture):
    seen = ContentPartImageParam(image_url=ImageURL(url=picture, detail="auto", media_type="image/png"))
    messages = [
        SystemMessage(content="You click.", cache=True),
        UserMessage(content=[ContentPartTextParam(text="Where is it?"), seen]),
    ]
    for _ in range(3):
        answer = asyncio.run(model.ainvoke(messages, output_format=Step))
        assert 0 <= answer.completion.x <= 99
        messages += [
            AssistantMessage(content=answer.completion.model_dump_json()),
            UserMessage(content=[ContentPartTextParam(text="And now?"), seen]),
        ]


def test_plain_text(model):
    assert asyncio.run(model.ainvoke([UserMessage(content="Hello")])).usage.completion_tokens
