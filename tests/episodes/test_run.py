"""Five lines of Python: a task, a page, and what came of it."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel

import holotron
from holotron.agent.cost import Price, PriceError, TokenUsage, read_prices
from tests.agent.replies import act
from tests.agent.scripted_server import scripted_server
from tests.env.site import Site
from tests.suites.miniwob_driver import needs_chromium

PAGE = "<title>Shop</title><style>body{margin:0} button{width:100%;height:200px}</style><button>Delete</button>"


@pytest.fixture
def site():
    with Site({"/": PAGE}) as site:
        yield site


class Hours(BaseModel):
    opens: str
    days: int


@needs_chromium
def test_a_task_and_its_result(site, tmp_path):
    steps, questions = [], []
    answers = act("click", x=500, y=100), act("answer", text="from nine"), {"opens": "9:00", "days": 5}
    with scripted_server(*answers, policy_format={"format": "json", "size": [640, 480]}) as server:
        result = holotron.run(
            "when does it open?",
            url=site.origin + "/",
            endpoint=server.url,
            ask=["delete"],
            record=tmp_path,
            extract=Hours,
            on_step=steps.append,
            on_question=lambda question: questions.append(question.rule),
        )
    assert (result.answer, result.success, result.reason) == ("from nine", True, "answered")
    assert result.data == Hours(opens="9:00", days=5)
    assert [step.action.text for step in result.steps] == [
        '{"action":"click","x":500,"y":100}',
        '{"action":"answer","text":"from nine"}',
    ]
    assert questions == ["delete"]
    assert "not confirmed" in result.steps[0].result.error
    assert [step.index for step in steps] == [0, 1]
    assert result.episode.environment.viewport == (640, 480)
    assert [png[:4] for png in result.screenshots] == [b"\x89PNG"] * 2
    assert holotron.EpisodeStore(tmp_path).read(result.episode.id) == result.episode
    usage = result.usage
    assert (usage.steps, usage.prompt, usage.cached, usage.output) == (2, 2000, 1200, 20)


@needs_chromium
async def test_stopping_and_extracting_in_vain(site):
    with scripted_server(act("hover", x=1, y=1)) as server:
        result = await holotron.arun(
            "x",
            site.origin + "/",
            endpoint=server.url,
            extract=Hours,
            should_stop=lambda step: step.index == 1,
            size=(320, 200),
        )
    assert (result.reason, result.success, len(result.steps), result.data) == ("stopped", False, 2, None)
    assert "no Hours could be made" in result.detail


def test_what_cannot_be_is_said(tmp_path):
    (tmp_path / "page.html").touch()
    for url in (f"{tmp_path}/page.html", f"file://{tmp_path}/page.html"):
        with pytest.raises(ValueError, match=r"is a file, .* http\.server --directory .*8000/page\.html"):
            holotron.run("x", url)
    with pytest.raises(ValueError, match="give one of them"):
        holotron.run("x", "http://localhost", model="a", endpoint="b")
    with pytest.raises(ValueError, match="must begin with http"):
        holotron.run("x", "ftp://localhost")

    async def inside():
        with pytest.raises(RuntimeError, match=r"await holotron\.arun"):
            holotron.run("x", "http://localhost")

    asyncio.run(inside())


def test_prices(tmp_path):
    table = tmp_path / "prices.toml"
    table.write_text('currency = "EUR"\n["holo*"]\ninput = 2\ncached = 0.5\noutput = 10\n')
    prices = read_prices(table)
    assert prices.find("gpt") is None
    assert prices.find("holotron-12b") == Price(2, 0.5, 10)
    spent = TokenUsage(prompt=1_000_000, cached=400_000, output=50_000) + TokenUsage(prompt=1_000_000)
    assert spent.money(prices.find("holo2")) == pytest.approx(1.6 * 2 + 0.4 * 0.5 + 0.5)
    other = tmp_path / "prices.json"
    other.write_text('{"holo*": {"input": 2, "cached": 0.5, "output": 10}}')
    assert read_prices(other).find("holo2") == Price(2, 0.5, 10)
    for text, problem in (("[a]\nin = 1", "unknown field 'in'"), ('[a]\ninput = "x"', "a number"), ("[", "not TOML")):
        table.write_text(text)
        with pytest.raises(PriceError, match=problem):
            read_prices(table)


def test_everything_a_user_needs_is_exported():
    for name in holotron.__all__:
        assert getattr(holotron, name) is not None
    assert {"run", "arun", "Agent", "load", "Engine"} <= set(dir(holotron))
