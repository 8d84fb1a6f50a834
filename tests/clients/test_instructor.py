"""instructor: answers of a type, by tool call and by schema, streamed and with a picture."""

from __future__ import annotations

import instructor
import openai
import pytest
from pydantic import BaseModel, ConfigDict, Field

from .toolbox import parts


class Point(BaseModel):
    """A point on the screen."""

    model_config = ConfigDict(extra="forbid")

    x: int = Field(ge=0, le=99)


@pytest.fixture(params=["TOOLS", "JSON_SCHEMA"])
def client(live, request):
    mode = instructor.Mode[request.param]
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as plain:
        yield instructor.from_openai(plain, mode=mode)


def test_an_answer_of_a_type(client, picture):
    messages = [{"role": "user", "content": parts("Where is it?", picture)}]
    for _ in range(2):
        point, raw = client.chat.completions.create_with_completion(
            model="tiny", messages=messages, response_model=Point, max_tokens=200, seed=1, max_retries=0
        )
        assert 0 <= point.x <= 99
        said = raw.choices[0].message.model_dump()
        messages += [said, *_replies(said), {"role": "user", "content": "Again?"}]


def _replies(said):
    return [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in said["tool_calls"] or ()]


def test_streamed_part_by_part(client):
    *_, last = client.chat.completions.create_partial(
        model="tiny",
        messages=[{"role": "user", "content": "Where?"}],
        response_model=Point,
        max_tokens=200,
        seed=1,
        max_retries=0,
    )
    assert 0 <= last.x <= 99
