"""Every family's format, end to end: a model that answers as the family does clicks through pages in a real browser.

What it was sent is, to the letter, what the published contract says: words, order, points, old screenshots.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from holotron.actions.action import ActionError, Click, Drag, Goto, Hover, Type, Wait
from holotron.agent.agent import Agent, Budget
from holotron.agent.endpoint import EndpointModel
from holotron.agent.formats.holotron import DESKTOP_KINDS, HolotronFormat
from holotron.agent.formats.image_size import ImageRule
from holotron.agent.formats.localizers import LOCALIZERS
from holotron.agent.policy_format import FORMATS, JsonFormat, NanoFormat, find_format, format_of, format_of_name
from holotron.env.environment import Observation
from tests.agent.family_models import DONE, family, pictures, rendered
from tests.agent.replies import Recited
from tests.agent.test_policy_format import shot
from tests.env.conftest import world  # noqa: F401  fixture
from tests.env.driver import World
from tests.env.site import Site

FAMILIES = [name for name in FORMATS if name not in ("nano", "json", "json-bare")]
SIZES = ((500, 320), (1280, 720), (1600, 1200))
TASK = "Click what is red"
# Left, top, width and height in thousandths of the view.
BOXES = (
    (10, 20, 30, 40),
    (940, 920, 40, 50),
    (480, 490, 30, 30),
    (100, 800, 30, 40),
    (800, 100, 30, 40),
    (3, 960, 20, 30),
)
OMITTED = "[Image omitted by context cleaning]"
DAY = "2026-11-16"


def box(index: int) -> str:
    left, top, width, height = BOXES[index]
    place = f"left:{left / 10}vw;top:{top / 10}vh;width:{width / 10}vw;height:{height / 10}vh"
    return f'<title>{index}</title><a href="/{index + 1}" style="position:fixed;background:#f00;{place}"></a>'


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    pages = {f"/{index}": box(index) for index in range(len(BOXES))}
    with Site({**pages, f"/{len(BOXES)}": "<title>done</title>"}) as found:
        yield found


@pytest.fixture(scope="module")
def views(world: World, site: Site):  # noqa: F811
    """One browser of each size for all families."""
    stack = AsyncExitStack()

    async def open_all():
        return {s: await stack.enter_async_context(world.env(site.origin, width=s[0], height=s[1])) for s in SIZES}

    yield world.run(open_all())
    world.run(stack.aclose())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_clicks_its_way_through(world: World, site: Site, views, name: str) -> None:  # noqa: F811
    policy_format = find_format(name).on(DAY)
    model = family(name)

    async def play(env, first: int, address: str):
        endpoint = EndpointModel(address, style=policy_format.options(512))
        try:
            await env.goto(f"{site.origin}/{first}")
            agent = Agent(endpoint, env, policy_format=policy_format, budget=Budget(steps=9))
            return agent, await agent.run(TASK)
        finally:
            await endpoint.aclose()

    with model.serve() as server:
        # The first size from page to page, so that screenshots grow old; the others one click each.
        for size, first in zip(SIZES, (0, len(BOXES) - 1, len(BOXES) - 2), strict=True):
            model.asked.clear()
            agent, ending = world.run(play(views[size], first, server.origin))
            assert (ending.reason, ending.answer) == ("answered", DONE), [s.error for s in agent.steps]
            assert [step.observation.title for step in agent.steps] == [*map(str, range(first, len(BOXES))), "done"]
            assert len(agent.steps) == len(model.asked)
            sent = pictures(model.asked[-1]["messages"])[-1].size
            assert sent == (seen_size(name, size) if name.startswith("holo1") else size)
            if size == SIZES[0]:
                texts = rendered(model.asked[-1]["messages"])
                check_history(name, texts, [step.reply.text for step in agent.steps[:-1]])
                answer_form = model.asked[-1].get("response_format")
                assert (answer_form is not None) == name.startswith("holo")


def seen_size(name: str, size: tuple[int, int]) -> tuple[int, int]:
    return {(500, 320): (504, 308), (1280, 720): (1288, 728), (1600, 1200): (1148, 840)}[size]


def check_history(name: str, texts: list[str], answers: list[str]) -> None:
    """The last of seven prompts: what stands in it of six steps and the screenshot before the answer."""
    system, *rest = texts
    assert rest == expected(name, answers)
    if name == "ui-tars":
        assert system == "system: You are a helpful assistant."
    elif name.startswith("qwen"):
        assert system.startswith("system: # Tools\n\nYou may call one or more functions to assist with the user query.")
        resolution = "1000x1000" if name == "qwen-vl" else "504x308"
        assert f"* The screen's resolution is {resolution}.\\n* Whenever" in system
        assert system.endswith("- If finishing, use action=terminate in the tool call.")
    else:
        assert f"The current date is {DAY}" in system


def expected(name: str, answers: list[str]) -> list[str]:
    last = len(answers)
    if name in ("holo1", "holo1.5", "holo2"):
        task = f"<task>\n{TASK}\n</task>\n"
        looks = [
            f"user: {'' if step else task}<observation step={step + 1}>\n"
            f"<screenshot>\n{'‹image›' if step > last - 3 else OMITTED}\n</screenshot>\n\n</observation>\n"
            for step in range(last + 1)
        ]
        return turns(looks, answers)
    if name == "holotron":
        told = '{"note":null,"thought":"It is red.","tool_call":{"tool_name":"click_desktop","element":"the red box",'
        dumped = [
            told + answer[answer.index('"x"') :].replace(" ", "")[:-2] + ',"button":"left"}}' for answer in answers
        ]
        looks = [
            f"user: <observation>\n{'‹image›' if s > last - 3 else OMITTED}\n</observation>" for s in range(last + 1)
        ]
        found = [f"user: Task: {TASK}"]
        for step, look in enumerate(looks):
            found += [look, *([f"assistant: {dumped[step]}", TOOL_OUTPUT] if step < last else [])]
        return found
    if name == "ui-tars":
        marked = [a.replace("'(", "'<|box_start|>(").replace(")')", ")<|box_end|>')") for a in answers]
        looks = ["user: ‹image›" if step > last - 5 else "" for step in range(last + 1)]
        return [f"user: {UI_TARS}{TASK}\n", *(text for text in turns(looks, marked) if text)]
    asked = (
        "user: ‹image›\nPlease generate the next move according to the UI screenshot, instruction and previous "
        f"actions.\n\nInstruction: {TASK}\n\nPrevious actions:\nStep 1: Click the red box.\nStep 2: Click the red box."
    )
    return turns([asked, *["user: ‹image›"] * 4], answers[2:])


TOOL_OUTPUT = 'user: <tool_output tool="click_desktop">\n\n</tool_output>'
UI_TARS = r"""You are a GUI agent. You are given a task and your action history, with screenshots. You need to perform the next action to complete the task.

## Output Format
```
Thought: ...
Action: ...
```

## Action Space

click(point='<point>x1 y1</point>')
left_double(point='<point>x1 y1</point>')
right_single(point='<point>x1 y1</point>')
drag(start_point='<point>x1 y1</point>', end_point='<point>x2 y2</point>')
hotkey(key='ctrl c') # Split keys with a space and use lowercase. Also, do not use more than 3 keys in one hotkey action.
type(content='xxx') # Use escape characters \', \", and \n in content part to ensure we can parse the content in normal python string format. If you want to submit your input, use \n at the end of content. 
scroll(point='<point>x1 y1</point>', direction='down or up or right or left') # Show more information on the `direction` side.
wait() #Sleep for 5s and take a screenshot to check for any changes.
finished(content='xxx') # Use escape characters \', \", and \n in content part to ensure we can parse the content in normal python string format.


## Note
- Use English in `Thought` part.
- Write a small plan and finally summarize your next action (with its target element) in one sentence in `Thought` part.

## User Instruction
"""  # noqa: E501


def turns(looks: list[str], answers: list[str]) -> list[str]:
    """A question and its answer, and so on; the last question has none yet."""
    found = []
    for look, answer in zip(looks, [*answers, None], strict=True):
        found += [look, *([] if answer is None else [f"assistant: {answer}"])]
    return found


# ---- without a browser ----


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_published_prompts_stay_as_they_are() -> None:
    """What the published code renders, with its own values: a model expects these very bytes."""
    assert digest(find_format(f"holo1@{DAY}").system()) == "d1c7d8896a3c6328"
    desktop = HolotronFormat(kinds=DESKTOP_KINDS, date=DAY).system()
    assert digest(desktop) == "6f028ba77eb229b0"
    assert "goto" not in desktop
    browser = HolotronFormat(date=DAY).system()
    assert "- `goto(url)`: Open an address.\n" in browser
    assert digest(find_format("qwen-vl").system((1280, 800))) == "f29086610a4eb9a5"


def taken(action: object, text: str = "", url: str = "http://here/start"):
    class Step:
        observation = Observation(b"", 100, 100, url)
        error, feedback, forced = "", None, False

    step = Step()
    step.action, step.reply = action, None
    return step


def test_what_goes_on_from_the_step_before() -> None:
    moved = [taken(Hover(x=100, y=200))]
    drag = '{"note":null,"thought":"","tool_call":{"tool_name":"drag_to_desktop","element":"","x":300,"y":400}}'
    holotron = find_format("holotron")
    assert holotron.parse(drag, past=moved).action == Drag(x=100, y=200, to_x=300, to_y=400)
    with pytest.raises(ActionError, match="where the pointer happens to be"):
        holotron.parse(drag)
    call = '{"name": "computer_use", "arguments": {"action": "left_click_drag", "coordinate": [300, 400]}}'
    answer = f"Action: Drag it.\n<tool_call>\n{call}\n</tool_call>"
    assert find_format("qwen-vl").parse(answer, past=moved).action == Drag(x=100, y=200, to_x=300, to_y=400)
    restart = '{"note":"","thought":"","action":{"action":"restart"}}'
    assert find_format("holo2").parse(restart, past=moved).action == Goto(url="http://here/start")


def test_a_plan_changes_nothing_on_the_screen() -> None:
    call = {"tool_name": "update_plan", "goals": [{"title": "Look", "status": "running"}]}
    model = Recited({"note": "n", "thought": "t", "tool_call": call}, HOLOTRON_CLICK, HOLOTRON_ANSWER)

    class Env:
        def __init__(self) -> None:
            self.done: list[object] = []

        async def observe(self) -> Observation:
            return Observation(shot(1), 160, 210, "http://here/")

        async def act(self, action) -> None:  # type: ignore[no-untyped-def]
            self.done.append(action)
            if isinstance(action, Click):
                from holotron.env.errors import ActionFailed

                raise ActionFailed("nothing is there")

        async def status(self):  # type: ignore[no-untyped-def]
            from holotron.env.environment import TaskStatus

            return TaskStatus()

    env = Env()
    agent = Agent(model, env, policy_format=find_format("holotron"))
    ending = asyncio.run(agent.run("Do it"))
    assert (ending.reason, env.done) == ("answered", [Wait(seconds=0), Click(x=1, y=2, element="it")])
    assert (agent.steps[0].note, agent.steps[0].thought) == ("n", "t")
    told = [said.text for said in model.heard if said.image is None][1:]
    assert told == [
        "Task: Do it",
        '<tool_output tool="update_plan">\n\n</tool_output>',
        '<error tool="click_desktop">\nnothing is there\n</error>',
    ]


HOLOTRON_CLICK = {
    "note": None,
    "thought": "",
    "tool_call": {"tool_name": "click_desktop", "element": "it", "x": 1, "y": 2},
}
HOLOTRON_ANSWER = {"note": None, "thought": "", "tool_call": {"tool_name": "answer", "content": "done"}}


def test_what_a_family_has_no_words_for() -> None:
    for name in FAMILIES:
        policy_format = find_format(name)
        assert "click" in policy_format.with_kinds(("click", "new_tab")).kinds
        assert find_format(policy_format.spec) == policy_format
        with pytest.raises(ValueError, match="has no words for new_tab"):
            policy_format.with_kinds(("new_tab",))
    with pytest.raises(ActionError, match="typing without Enter"):
        find_format("holo2").write(Type(text="a", x=1, y=2))
    with pytest.raises(ActionError, match="one action, not 2"):
        find_format("ui-tars").parse("Action: wait()\n\nfinished(content='')")


ANSWERS = {
    "json": '{"x":250,"y":500}',
    "holo1": "Click(287, 420)",
    "holo1.5": '{"action":"click_absolute","x":287,"y":420}',
    "holo2": '{"x":250,"y":500}',
    "qwen-vl": 'Action: It.\n<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [250, 500]}}\n</tool_call>',  # noqa: E501
    "qwen2.5-vl": 'Action: It.\n<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [399, 602]}}\n</tool_call>',  # noqa: E501
    "ui-tars": "Action: click(point='<point>399 602</point>')",
}


@pytest.mark.parametrize("name", LOCALIZERS)
def test_a_localizer_of_every_family(name: str) -> None:
    """The same place on a screen of 1600x1200, in each family's words."""
    localizer = LOCALIZERS[name]
    x, y = localizer.parse(ANSWERS[name], (1600, 1200))
    assert abs(x - 250) <= 1
    assert abs(y - 500) <= 1
    [*_, question] = localizer.messages("the <b>Save</b> button", shot(1), (160, 210))
    assert question.text.endswith("the <b>Save</b> button")
    assert question.image is not None
    for wrong in ("", "nothing there", "[]", '{"x":-1,"y":2}'):
        with pytest.raises(ActionError):
            localizer.parse(wrong, (1600, 1200))
    if name == "holo2":
        assert question.text == (
            "Localize an element on the GUI image according to the provided target and output a click position.\n"
            "     * You must output a valid JSON following the format: {'properties': {'x': {'description': 'The x "
            "coordinate, normalized between 0 and 1000.', 'maximum': 1000, 'minimum': 0, 'title': 'X', 'type': "
            "'integer'}, 'y': {'description': 'The y coordinate, normalized between 0 and 1000.', 'maximum': 1000, "
            "'minimum': 0, 'title': 'Y', 'type': 'integer'}}, 'required': ['x', 'y'], 'title': 'ClickCoordinates', "
            "'type': 'object'}\n     Your target is:\nthe <b>Save</b> button"
        )
        assert localizer.options().template == {"thinking": False}


def test_the_rule_of_image_sizes_is_the_processors() -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    for rule in (ImageRule(28, 56 * 56, 1280 * 28 * 28), ImageRule(32, 64 * 32 * 32, 16384 * 32 * 32)):
        for width in (40, 97, 160, 500, 798, 1204, 1366, 1920, 3840, 7000):
            for height in (40, 210, 320, 1080, 2160):
                theirs = smart_resize(height, width, rule.factor, rule.min_pixels, rule.max_pixels)
                assert rule.resized((width, height)) == theirs[::-1]
    with pytest.raises(ValueError, match="200 times"):
        rule.resized((8000, 30))


def test_the_family_follows_from_the_checkpoint(tmp_path: Path) -> None:
    names = {
        "Hcompany/Holo1-7B": "holo1",
        "Hcompany/Holo1.5-3B": "holo1.5",
        "holo1-5-7b-20250915": "holo1.5",
        "Hcompany/Holo2-30B-A3B": "holo2",
        "Hcompany/Holotron-12B": "holotron",
        "Hcompany/Holotron-3-Nano": "holotron",
        "holotron-nano": "nano",
        "ByteDance-Seed/UI-TARS-1.5-7B": "ui-tars",
        "Qwen/Qwen3-VL-8B-Instruct": "qwen-vl",
        "Qwen/Qwen2.5-VL-7B-Instruct": "qwen2.5-vl",
        "nvidia/NVIDIA-Nemotron-Nano-12B-v2": None,
        "gpt-oss-20b": None,
    }
    assert {name: found and found.name for name in names for found in [format_of_name(name)]} == names
    plain = tmp_path / "weights"
    plain.mkdir()
    assert format_of(plain) is None
    for config, wanted in (
        ('{"model_type": "qwen3_vl_moe"}', "qwen-vl"),
        ('{"model_type": "qwen2_5_vl", "_name_or_path": "Hcompany/Holo1.5-7B"}', "holo1.5"),
        ('{"model_type": "nemotron_h"}', None),
        ("[]", None),
    ):
        (plain / "config.json").write_text(config)
        found = format_of(plain)
        assert (found and found.name) == wanted
    cached = tmp_path / "models--Hcompany--Holo2-8B" / "snapshots" / "abc"
    cached.mkdir(parents=True)
    (cached / "config.json").write_text('{"model_type": "qwen3_vl"}')
    assert format_of(cached) == find_format("holo2")
    (cached / "policy.json").write_text('{"format": "json"}')  # what is stated counts
    assert format_of(cached) == JsonFormat()
    assert NanoFormat().on(DAY).spec == "nano"
    assert find_format("holo2").on(DAY).spec == f"holo2@{DAY}"
