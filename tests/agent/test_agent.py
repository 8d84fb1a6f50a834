"""The loop, in a real browser: what the policy says happens, and what happens it is told."""

from __future__ import annotations

import pytest

from holotron.actions.action import Click
from holotron.agent.agent import Agent, Budget
from holotron.agent.chat import ChatOptions
from holotron.agent.endpoint import EndpointModel
from holotron.agent.in_process import EngineModel
from holotron.agent.policy_format import BareJsonFormat
from holotron.agent.stuck import StuckLimits
from holotron.engine.config import EngineConfig
from holotron.engine.engine import Engine
from holotron.env.safety.confirm import Confirmation
from holotron.model.initialize import random_model
from holotron.model.text.byte_tokenizer import byte_tokenizer
from holotron.model.text.chat_template import DEFAULT_TEMPLATE, ChatTemplate
from holotron.model.text.conversation import ConversationWriter
from tests.agent.replies import Recited, act
from tests.env.conftest import good, world  # noqa: F401  fixtures
from tests.env.driver import World
from tests.env.site import Site
from tests.server.live import TINY, serving, write_checkpoint

LOGIN = """<title>Log in</title><style>body { margin: 0 } input, button { position: absolute; left: 0; width: 500px;
height: 60px; font-size: 30px }</style><form action="/welcome"><input name="user" style="top: 0">
<input name="word" type="password" style="top: 80px"><button style="top: 160px">Go</button></form>"""


@pytest.fixture
def site(good: Site) -> Site:  # noqa: F811
    good.pages["/"] = LOGIN
    good.pages["/welcome"] = "<title>Welcome</title><h1>Hello</h1>"
    return good


def run(world: World, site: Site, model, task="Log in as ada", **options):  # noqa: F811
    async def main():
        async with world.env(site.origin) as env:
            await env.goto(site.origin + "/")
            agent = Agent(model, env, **options)
            return agent, await agent.run(task)

    return world.run(main())


def test_a_task_from_its_page_to_its_answer(world, site):  # noqa: F811
    model = Recited(
        act("type", text="ada", x=500, y=90, note="a form", thought="the name first"),
        act("type", text="secret", x=500, y=340),
        act("click", x=500, y=590),
        act("answer", text="logged in"),
    )
    agent, ending = run(world, site, model)
    assert (ending.reason, ending.answer) == ("answered", "logged in")
    assert site.hits[-1] == "/welcome?user=ada&word=secret"
    assert [step.observation.title for step in agent.steps] == ["Log in", "Log in", "Log in", "Welcome"]
    assert agent.steps[0].note == "a form"
    assert agent.steps[2].action == Click(x=500, y=590)
    assert model.heard[0].role == "system"
    assert "Task: Log in as ada" in model.heard[1].text
    assert [said.image is not None for said in model.heard[1:]] == [True] * 4
    assert model.closed == 1


def test_what_fails_is_told_and_goes_on(world, site):  # noqa: F811
    model = Recited(
        "I would click the button",
        act("click", x=5000, y=1),
        act("select", x=500, y=90, option="nothing"),
        act("goto", url="https://elsewhere.example/"),
        act("answer", text=""),
    )
    agent, ending = run(world, site, model)
    assert ending.reason == "answered"
    told = [said.text for said in model.heard[2:]]
    assert "could not be used" in told[0]
    assert "x" in told[1]
    assert "5000" in told[1]
    assert "The last action failed" in told[2]
    assert "elsewhere.example" in told[3]
    assert [step.action is None for step in agent.steps] == [True, True, False, False, False]


def test_nonsense_in_a_row_ends_it(world, site):  # noqa: F811
    agent, ending = run(world, site, Recited("nonsense"), budget=Budget(max_misunderstood=3))
    assert ending.reason == "step_limit"
    assert "no action" in ending.detail
    assert len(agent.steps) == 3


def test_the_last_step_can_only_answer(world, site):  # noqa: F811
    model = Recited(act("hover", x=1, y=1), act("hover", x=1, y=1), act("answer", text="late"))
    _agent, ending = run(world, site, model, budget=Budget(steps=3))
    assert (ending.reason, ending.answer) == ("step_limit", "late")
    assert "last step" in model.heard[-1].text
    forced = str(model.schemas[-1])
    assert "answer" in forced
    assert "hover" not in forced
    _, ending = run(world, site, Recited(act("hover", x=1, y=1)), budget=Budget(steps=2))
    assert ending.reason == "step_limit"
    _, ending = run(world, site, Recited(act("hover", x=1, y=1)), budget=Budget(seconds=0.01))
    assert ending.reason == "time_limit"
    _, ending = run(world, site, Recited(act("hover", x=1, y=1)), budget=Budget(tokens=5))
    assert ending.reason == "token_limit"


def test_a_validator_sends_answers_back(world, site):  # noqa: F811
    policy = Recited(act("answer", text="wrong"), act("answer", text="right"))
    validator = Recited({"explanation": "look again", "success": False}, {"explanation": "fine", "success": True})
    agent, ending = run(world, site, policy, validator=validator)
    assert ending.answer == "right"
    assert "look again" in policy.heard[2].text
    assert agent.steps[0].feedback == "look again"
    assert sum(said.image is not None for said in validator.heard) == 3  # one screenshot, then two


def test_a_localizer_finds_the_point(world, site):  # noqa: F811
    policy = Recited(act("click", x=0, y=0, element="the Go button"), act("answer", text=""))
    localizer = Recited({"x": 500, "y": 590})
    agent, _ = run(world, site, policy, localizer=localizer)
    assert agent.steps[0].action == Click(x=500, y=590, element="the Go button")
    assert "the Go button" in localizer.heard[0].text
    assert site.hits[-1].startswith("/welcome")


def test_infeasible_is_an_ending(world, site):  # noqa: F811
    _, ending = run(world, site, Recited(act("infeasible", reason="no such user")))
    assert (ending.reason, ending.detail) == ("infeasible", "no such user")


STYLE = ChatOptions(max_tokens=120, temperature=1.0, seed=1, keep_images=2)
FORMAT = BareJsonFormat(("click", "hover", "press", "scroll", "answer"))


def check_steps(agent, ending):
    assert ending.reason in ("answered", "step_limit")
    # The grammar leaves nothing but actions, unless the tokens ran out in the middle of one.
    assert all(step.action is not None or step.reply.finish_reason == "length" for step in agent.steps)
    cached = [step.reply.cached_tokens for step in agent.steps]
    totals = [step.reply.prompt_tokens + len(step.reply.token_ids) for step in agent.steps]
    assert cached[1:] == totals[:-1]  # a step computes what is new and nothing else
    assert all(len(step.reply.logprobs) == len(step.reply.token_ids) for step in agent.steps)


def test_a_real_model_in_this_process(world, site):  # noqa: F811
    model = random_model(TINY)
    tokenizer = byte_tokenizer(TINY)
    prompts = ConversationWriter(tokenizer, ChatTemplate(DEFAULT_TEMPLATE.read_text()), TINY)
    config = EngineConfig(slots=9, pages=400, page_size=16, max_context=6000)
    with Engine(model, config, tokenizer) as engine:
        agent, ending = run(
            world, site, EngineModel(engine, prompts, STYLE), policy_format=FORMAT, budget=Budget(steps=5)
        )
        assert engine.sessions() == []
    check_steps(agent, ending)


def test_a_real_model_behind_an_address(world, site, tmp_path):  # noqa: F811
    folder = write_checkpoint(tmp_path / "tiny")
    with serving(folder) as live:

        async def main():
            model = EndpointModel(live.url + "/v1", style=STYLE)
            try:
                async with world.env(site.origin) as env:
                    await env.goto(site.origin + "/")
                    agent = Agent(model, env, policy_format=FORMAT, budget=Budget(steps=5))
                    return agent, await agent.run("Log in")
            finally:
                await model.aclose()

        agent, ending = world.run(main())
        assert len(live.state.sessions) == 0
    check_steps(agent, ending)
    assert agent.steps[0].reply.weight_version == "0"


def test_a_server_without_sessions_gets_the_whole_history(world, site, tmp_path):  # noqa: F811
    folder = write_checkpoint(tmp_path / "tiny")
    with serving(folder) as live:

        async def main():
            model = EndpointModel(live.url, style=STYLE, sessions=False)
            try:
                async with world.env(site.origin) as env:
                    agent = Agent(model, env, policy_format=FORMAT, budget=Budget(steps=4))
                    return agent, await agent.run("Look")
            finally:
                await model.aclose()

        agent, _ending = world.run(main())
    assert all(step.action is not None or step.reply.finish_reason == "length" for step in agent.steps)


async def test_nobody_at_the_address():
    from holotron.agent.chat import ModelUnavailable

    model = EndpointModel("http://127.0.0.1:9", attempts=2)
    try:
        with pytest.raises(ModelUnavailable, match=r"127\.0\.0\.1:9"):
            await model.open()
    finally:
        await model.aclose()


def test_a_forced_answer_is_the_limit_and_is_kept(world, site):  # noqa: F811
    model = Recited(act("hover", x=1, y=1), act("answer", text="late"))
    _agent, ending = run(world, site, model, budget=Budget(steps=2))
    assert (ending.reason, ending.answer, ending.forced) == ("step_limit", "late", True)


def test_going_in_circles_ends_as_stuck(world, site):  # noqa: F811
    agent, ending = run(world, site, Recited(act("hover", x=500, y=900)), stuck=StuckLimits())
    assert ending.reason == "stuck"
    assert "does not change" in ending.detail
    # The page may still have been drawn when the first one was looked at.
    before, *repeated = [step.observation.image for step in agent.steps][-4:]
    if len(agent.steps) == 3:
        before, repeated = None, [before, *repeated]
    assert len(repeated) == 3
    assert len({before, *repeated}) == 2


async def test_hooks_hear_answer_and_stop(world, site):  # noqa: F811
    heard, asked = [], []

    async def never(question):
        raise AssertionError("the agent's own hook answers")

    async with world.env(site.origin, confirmation=Confirmation(["click"], never)) as env:
        await env.goto(site.origin + "/")
        agent = Agent(
            Recited(act("click", x=1, y=1)),
            env,
            on_step=lambda step: heard.append(step.index),
            on_question=lambda question: asked.append(question.rule),  # None: no
            should_stop=lambda step: "enough" if step.index == 1 else None,
        )
        agent, ending = agent, await agent.run("click")
    assert (ending.reason, ending.detail) == ("stopped", "enough")
    assert (heard, asked) == ([0, 1], ["click", "click"])
    assert "not confirmed" in agent.steps[0].error
