"""Other vocabularies: there and back is the identity, up to the losses that each of them documents."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseComputerToolCall, ResponseOutputMessage

from holotron.actions.action import (
    Action,
    ActionError,
    Answer,
    Back,
    Click,
    CloseTab,
    DoubleClick,
    Drag,
    Forward,
    Goto,
    Hover,
    Infeasible,
    NewTab,
    Press,
    Refresh,
    Scroll,
    Select,
    SwitchTab,
    Type,
    Wait,
)
from holotron.actions.coordinates import Space
from holotron.actions.dialects.anthropic import from_anthropic, to_anthropic
from holotron.actions.dialects.browsergym import from_browsergym, to_browsergym
from holotron.actions.dialects.calls import format_call, parse_calls
from holotron.actions.dialects.fields import Inexpressible
from holotron.actions.dialects.holo import from_holo, to_holo
from holotron.actions.dialects.openai import from_openai, to_openai
from holotron.actions.dialects.pyautogui import from_pyautogui, to_pyautogui
from holotron.actions.dialects.qwen import from_qwen, to_qwen
from holotron.actions.dialects.sequences import SHORTCUTS, expand, fold
from holotron.actions.dialects.uitars import from_uitars, split_reply, to_uitars
from tests.actions.samples import EVERY_KIND, TEXT, actions

SPACES = st.builds(Space, st.sampled_from(["relative", "pixels"]), st.integers(1001, 3000), st.integers(1001, 3000))
LARGE = Space("pixels", 1920, 1080)
RELATIVE = Space("relative", 1280, 800)
BROWSER_KEYS = {*SHORTCUTS, "Control+L", "Control+T"}


def close(ours: Action, theirs: Action) -> bool:
    """Equal, but for points that rounding moved by one."""
    a, b = ours.model_dump(), theirs.model_dump()
    for axis in ("x", "y", "to_x", "to_y"):
        one, other = a.pop(axis, None), b.pop(axis, None)
        if (one is None) != (other is None) or (one is not None and other is not None and abs(one - other) > 1):
            return False
    return a == b


def without(action: Action, **fields: Any) -> Action:
    known = {name: value for name, value in fields.items() if name in type(action).model_fields}
    return action.model_copy(update=known)


def lossy(action: Action) -> Action:
    """What every vocabulary without element descriptions and options makes of an action."""
    if isinstance(action, Select):
        return Type(text=action.option, x=action.x, y=action.y, enter=True)
    return without(action, element="")


def off_middle(action: Action) -> Action:
    near = isinstance(action, Scroll) and action.x is not None and action.y is not None
    if near and isinstance(action, Scroll) and abs((action.x or 0) - 500) <= 1 and abs((action.y or 0) - 500) <= 1:
        return without(action, x=None, y=None)
    return action


def unreachable_tab(action: Action) -> bool:
    return isinstance(action, SwitchTab | CloseTab) and (action.index or 0) > 7


def is_browser_key(action: Action) -> bool:
    return isinstance(action, Press) and action.keys in BROWSER_KEYS


# ---- properties ----


@settings(deadline=None)
@given(actions(), st.booleans())
def test_expanding_and_folding(action: Action, shortcuts: bool) -> None:
    if shortcuts and (is_browser_key(action) or unreachable_tab(action)):
        return
    assert fold(expand(action, shortcuts), shortcuts) == [lossy_without_place(action)]


def lossy_without_place(action: Action) -> Action:
    if isinstance(action, Select):
        return lossy(action)
    return without(action, element="") if isinstance(action, Type) and action.x is None else action


@settings(deadline=None)
@given(actions(), SPACES)
def test_openai(action: Action, space: Space) -> None:
    if unreachable_tab(action):
        with pytest.raises(Inexpressible, match="tab"):
            to_openai(action, space)
        return
    if is_browser_key(action):
        return
    item = json.loads(json.dumps(to_openai(action, space)))
    model = ResponseOutputMessage if item["type"] == "message" else ResponseComputerToolCall
    model.model_validate(item)
    expected = off_middle(lossy(action))
    if isinstance(expected, Wait) and expected.seconds:
        expected = Wait(seconds=2)
    [back] = from_openai(item, space)
    assert close(back, expected)


@settings(deadline=None)
@given(actions(), SPACES)
def test_anthropic(action: Action, space: Space) -> None:
    if unreachable_tab(action) or isinstance(action, Answer | Infeasible):
        with pytest.raises(Inexpressible, match=r"tab|answer|infeasible"):
            to_anthropic(action, space)
        return
    if is_browser_key(action):
        return
    expected = off_middle(lossy(action))
    if isinstance(expected, Scroll):
        expected = without(expected, amount=max(10, round(expected.amount / 10) * 10))
    [back] = from_anthropic(json.loads(json.dumps(to_anthropic(action, space))), space)
    assert close(back, expected)


@settings(deadline=None)
@given(actions(), SPACES)
def test_uitars(action: Action, space: Space) -> None:
    if unreachable_tab(action) or (isinstance(action, Click) and action.button == "middle"):
        with pytest.raises(Inexpressible, match=r"tab|middle"):
            to_uitars(action, space)
        return
    if is_browser_key(action):
        return
    expected = off_middle(lossy(action))
    match expected:
        case Type():
            text = expected.text.rstrip("\n")
            expected = without(expected, text=text, enter=expected.enter or text != expected.text)
        case Scroll():
            expected = without(expected, amount=50)
        case Wait():
            expected = Wait(seconds=5)
        case Infeasible():
            expected = Infeasible(reason="")
    calls = to_uitars(action, space)
    for call in calls:
        assert isinstance(ast.parse(call, mode="eval").body, ast.Call)
    [back] = from_uitars("\n\n".join(calls), space)
    if isinstance(back, Press) and isinstance(expected, Press) and not expected.keys.isascii():
        expected = without(expected, keys=back.keys if back.keys.lower() == expected.keys.lower() else expected.keys)
    assert close(back, expected)


@settings(deadline=None)
@given(actions(), SPACES)
def test_browsergym(action: Action, space: Space) -> None:
    if isinstance(action, Refresh):
        with pytest.raises(Inexpressible, match="BrowserGym cannot express refresh"):
            to_browsergym(action, space)
        return
    calls = to_browsergym(action, space)
    for call in calls:
        parsed = ast.parse(call, mode="eval").body
        assert isinstance(parsed, ast.Call)
        assert [ast.literal_eval(argument) for argument in parsed.args] == parse_calls(call)[0].positional
    [back] = from_browsergym("\n".join(calls), space)
    assert close(back, lossy(action))


@settings(deadline=None)
@given(actions(), SPACES)
def test_holo_desktop(action: Action, space: Space) -> None:
    if unreachable_tab(action) or isinstance(action, Wait | Infeasible):
        with pytest.raises(Inexpressible, match=r"tab|wait|infeasible"):
            to_holo(action, space, "desktop")
        return
    if is_browser_key(action):
        return
    expected = off_middle(action)
    if isinstance(expected, Select) or (isinstance(expected, Type) and expected.x is None):
        expected = lossy(expected)
    if isinstance(expected, Scroll):
        expected = without(expected, amount=max(10, round(expected.amount / 10) * 10))
    [back] = from_holo(json.loads(json.dumps(to_holo(action, space, "desktop"))), space)
    assert close(back, expected)


@settings(deadline=None)
@given(actions(), SPACES)
def test_holo_browser(action: Action, space: Space) -> None:
    try:
        calls = to_holo(action, space, "browser")
    except Inexpressible:
        assert not isinstance(action, Scroll | Back | Refresh | Goto | Wait | Answer)
        return
    expected = without(action, amount=50, x=None, y=None) if isinstance(action, Scroll) else action
    if isinstance(expected, Type):
        expected = without(expected, clear=True)
    [back] = from_holo(json.loads(json.dumps(calls)), space)
    assert close(back, expected)


@settings(deadline=None)
@given(actions(), SPACES)
def test_qwen(action: Action, space: Space) -> None:
    if unreachable_tab(action):
        with pytest.raises(Inexpressible, match="keys reach tabs"):
            to_qwen(action, space)
        return
    if is_browser_key(action):
        return
    expected = off_middle(lossy(action))
    if isinstance(expected, Infeasible):
        expected = Infeasible(reason="")
    [back] = from_qwen(json.loads(json.dumps(to_qwen(action, space))), space)
    assert close(back, expected)


def test_qwen_forms() -> None:
    left = {"action": "left_click", "coordinate": [960, 540]}
    assert to_qwen(Click(x=500, y=500), LARGE) == [left]
    assert to_qwen(Click(x=500, y=250), RELATIVE) == [{"action": "left_click", "coordinate": [500, 250]}]
    assert from_qwen([{"action": "triple_click", "coordinate": [5, 6]}], RELATIVE) == [DoubleClick(x=5, y=6)]
    assert from_qwen([{"action": "scroll", "pixels": -300}], RELATIVE) == [Scroll(direction="down", amount=30)]
    assert from_qwen([{"action": "key", "keys": ["ctrl", "c"]}], RELATIVE) == [Press(keys="Control+C")]
    assert from_qwen([{"action": "terminate", "status": "success"}], RELATIVE) == [Answer(text="")]
    drag = {"action": "left_click_drag", "coordinate": [3, 4]}
    assert from_qwen([drag], RELATIVE, pointer=(1, 2)) == [Drag(x=1, y=2, to_x=3, to_y=4)]
    with pytest.raises(Inexpressible, match="where the pointer happens to be"):
        from_qwen([drag], RELATIVE)
    with pytest.raises(Inexpressible, match="where the pointer happens to be"):
        from_qwen([{"action": "left_click"}], RELATIVE)


# ---- exact forms ----


@pytest.mark.parametrize(
    ("action", "form"),
    [
        (Click(x=500, y=500), {"type": "click", "button": "left", "x": 960, "y": 540}),
        (Click(x=0, y=1000, button="middle"), {"type": "click", "button": "wheel", "x": 0, "y": 1079}),
        (Press(keys="Control+C"), {"type": "keypress", "keys": ["CTRL", "C"]}),
        (Scroll(direction="up"), {"type": "scroll", "x": 960, "y": 540, "scroll_x": 0, "scroll_y": -540}),
        (Drag(x=0, y=0, to_x=500, to_y=500), {"type": "drag", "path": [{"x": 0, "y": 0}, {"x": 960, "y": 540}]}),
        (Back(), {"type": "keypress", "keys": ["ALT", "ARROWLEFT"]}),
        (Wait(seconds=0), {"type": "screenshot"}),
    ],
)
def test_openai_forms(action: Action, form: dict[str, Any]) -> None:
    assert to_openai(action, LARGE)["action"] == form
    assert from_openai(form, LARGE) == [action]


def test_openai_rows_and_buttons() -> None:
    item = to_openai(Type(text="hi", x=500, y=500, clear=True, enter=True), LARGE)
    assert [part["type"] for part in item["actions"]] == ["click", "keypress", "keypress", "type", "keypress"]
    assert from_openai({"type": "click", "button": "back", "x": 1, "y": 1}, LARGE) == [Back()]
    assert from_openai({"type": "click", "button": "forward", "x": 1, "y": 1}, LARGE) == [Forward()]
    assert from_openai({"type": "keypress", "keys": ["ARROWDOWN", "ARROWDOWN"]}, LARGE) == [
        Press(keys="ArrowDown", repeat=2)
    ]
    assert from_openai({"type": "scroll", "x": 0, "y": 0, "scroll_x": 192, "scroll_y": 108}, LARGE) == [
        Scroll(direction="right", amount=10, x=0, y=0),
        Scroll(direction="down", amount=10, x=0, y=0),
    ]
    with pytest.raises(Inexpressible, match="click with keys held down"):
        from_openai({"type": "click", "button": "left", "x": 1, "y": 1, "keys": ["SHIFT"]}, LARGE)


def test_anthropic_forms() -> None:
    declared = Space("pixels", 1024, 768)
    assert to_anthropic(Press(keys="Control++"), declared) == [{"action": "key", "text": "ctrl+plus"}]
    assert to_anthropic(Press(keys="PageDown"), declared) == [{"action": "key", "text": "Page_Down"}]
    assert to_anthropic(Drag(x=0, y=0, to_x=500, to_y=500), declared) == [
        {"action": "left_click_drag", "start_coordinate": [0, 0], "coordinate": [512, 384]}
    ]
    assert from_anthropic([{"action": "key", "text": "Down Down Return"}], declared) == [
        Press(keys="ArrowDown", repeat=2),
        Press(keys="Enter"),
    ]
    assert from_anthropic([{"action": "key", "text": "Tab", "repeat": 4}], declared) == [Press(keys="Tab", repeat=4)]
    scroll = {"action": "scroll", "coordinate": [512, 0], "scroll_direction": "down", "scroll_amount": 3}
    assert from_anthropic([scroll], declared) == [Scroll(direction="down", amount=30, x=500, y=1)]
    for inexpressible in (
        {"action": "triple_click", "coordinate": [1, 1]},
        {"action": "left_click"},
        {"action": "left_click", "coordinate": [1, 1], "text": "shift"},
        {"action": "left_click_drag", "coordinate": [1, 1]},
        {"action": "hold_key", "text": "a", "duration": 1},
    ):
        with pytest.raises(Inexpressible):
            from_anthropic([inexpressible], declared)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("click(point='<point>200 300</point>')", Click(x=200, y=300)),
        ("click(start_box='(200,300)')", Click(x=200, y=300)),
        ("click(start_box='<|box_start|>(200, 300)<|box_end|>')", Click(x=200, y=300)),
        ("click(start_box='[100, 200, 300, 400]')", Click(x=200, y=300)),
        ("left_double(point='<point>1 2</point>')", DoubleClick(x=1, y=2)),
        ("right_single(point='<point>1 2</point>')", Click(x=1, y=2, button="right")),
        ("hover(point='<point>1 2</point>')", Hover(x=1, y=2)),
        ("drag(start_point='<point>1 2</point>', end_point='<point>3 4</point>')", Drag(x=1, y=2, to_x=3, to_y=4)),
        ("drag(start_box='(1,2)', end_box='(3,4)')", Drag(x=1, y=2, to_x=3, to_y=4)),
        ("hotkey(key='ctrl c')", Press(keys="Control+C")),
        ("hotkey(key='ctrl+c')", Press(keys="Control+C")),
        (r"type(content='it\'s\n')", Type(text="it's", enter=True)),
        ('type(content="say \\"hi\\"")', Type(text='say "hi"')),
        (
            "scroll(point='<point>1 2</point>', direction='down')",
            Scroll(direction="down", x=1, y=2),
        ),
        ("wait()", Wait(seconds=5)),
        ("finished(content='xxx')", Answer(text="xxx")),
        ("finished()", Answer(text="")),
        ("call_user()", Infeasible(reason="")),
        ("hotkey(key='ctrl l')\n\ntype(content='https://a.b/\\n')", Goto(url="https://a.b/")),
    ],
)
def test_uitars_forms(text: str, expected: Action) -> None:
    assert from_uitars(text, RELATIVE) == [expected]


def test_uitars_replies() -> None:
    assert split_reply("Thought: I click.\nAction: click(start_box='(1,2)')") == (
        "I click.",
        "click(start_box='(1,2)')",
    )
    assert split_reply("wait()") == ("", "wait()")
    assert to_uitars(Click(x=200, y=300), RELATIVE) == ["click(point='<point>200 300</point>')"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mouse_click(887.2, 68)", Click(x=462, y=63)),
        ("mouse_click(960, 540, 'right')", Click(x=500, y=500, button="right")),
        ("mouse_click(x=960, y=540, button=\"middle\")", Click(x=500, y=500, button="middle")),
        ("noop()", Wait(seconds=1)),
        ("noop(500)", Wait(seconds=0.5)),
        ("scroll(0, 540)", Scroll(direction="down")),
        ("scroll(-192.0, 0)", Scroll(direction="left", amount=10)),
        ("keyboard_press('Control+a')", Press(keys="Control+A")),
        ("keyboard_press('Meta+Shift+t')", Press(keys="Shift+Meta+T")),
        ("tab_focus(2)", SwitchTab(index=2)),
        ("new_tab()\ngoto('https://a.b')", NewTab(url="https://a.b")),
        ("tab_focus(1); tab_close()", CloseTab(index=1)),
        ("send_msg_to_user(\"It is 4.\")", Answer(text="It is 4.")),
        ("report_infeasible('no')", Infeasible(reason="no")),
    ],
)  # fmt: skip
def test_browsergym_forms(text: str, expected: Action) -> None:
    assert from_browsergym(text, LARGE) == [expected]


class Shares(Space):
    """Points from 0 to 1."""

    def to_relative(self, x: float, y: float) -> tuple[int, int]:
        return super().to_relative(1000 * x, 1000 * y)


SHARES = Shares("relative", 1600, 900)


@settings(deadline=None)
@given(actions())
def test_pyautogui(action: Action) -> None:
    expected = [without(action, element="")]
    if isinstance(action, Type) and (text := action.text.rstrip("\n")) != action.text:
        expected = [without(expected[0], text=text, enter=True)]
        if action.enter:  # a second time
            expected += [Press(keys="Enter")]
    assert from_pyautogui("\n".join(to_pyautogui(action)), SHARES) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pyautogui.click(x=0.1632, y=0.2711)", Click(x=163, y=271)),
        ("```python\n# open it\npyautogui.click(0.5, 0.25)\n```", Click(x=500, y=250)),
        ("click(x=0.3674, y=0.9192)", Click(x=367, y=919)),
        ("pyautogui.click(x=0.5, y=0.5, button='right')", Click(x=500, y=500, button="right")),
        ("pyautogui.click(x=0.5, y=0.5, clicks=2)", DoubleClick(x=500, y=500)),
        ("computer.triple_click(x=0.5, y=0.5)", DoubleClick(x=500, y=500)),
        ("pyautogui.doubleClick()", DoubleClick(x=7, y=9)),  # where the pointer is
        ("pyautogui.dragTo(x=0.75, y=0.5, button='left')", Drag(x=7, y=9, to_x=750, to_y=500)),
        ("pyautogui.dragTo(from_coord=(0.1, 0.2), to_coord=[0.3, 0.4])", Drag(x=100, y=200, to_x=300, to_y=400)),
        ("pyautogui.hotkey(['ctrl', 'o'])", Press(keys="Control+O")),
        ("pyautogui.hotkey(keys=['ctrl', 'c'])", Press(keys="Control+C")),
        ("pyautogui.hotkey('ctrl', 'shift', 't')", Press(keys="Control+Shift+T")),
        ("pyautogui.press(keys='down', presses=3)", Press(keys="ArrowDown", repeat=3)),
        ("pyautogui.press(keys=['enter'])", Press(keys="Enter")),
        ("pyautogui.write(message='bread buns\\n')", Type(text="bread buns", enter=True)),
        ("pyautogui.scroll(-5)", Scroll(direction="down", amount=50)),
        ("pyautogui.scroll(3, x=0.2, y=0.4)", Scroll(direction="up", amount=30, x=200, y=400)),
        ("pyautogui.scroll(page=-0.1)", Scroll(direction="down", amount=10)),
        ("pyautogui.hscroll(page=0.25)", Scroll(direction="right", amount=25)),
        ("mobile.swipe(from_coord=[0.5, 0.8], to_coord=[0.5, 0.3])", Scroll(direction="down", amount=50, x=500, y=800)),
        ("browser.select_option(x=0.1, y=0.2, value='Peru')", Select(x=100, y=200, option="Peru")),
        ("mobile.back()", Back()),
        ("computer.wait(seconds=3)", Wait(seconds=3)),
        ("computer.terminate(status='success')", Answer(text="")),
        ("terminate(status='failure', reason='no such file')", Infeasible(reason="no such file")),
        ("answer('42')", Answer(text="42")),
    ],
)
def test_pyautogui_forms(text: str, expected: Action) -> None:
    assert from_pyautogui(text, SHARES, (7, 9)) == [expected]


@pytest.mark.parametrize(
    "text", ["pyautogui.click()", "pyautogui.dragTo(x=0.1, y=0.1)", "mobile.home()", "keyDown('a')"]
)
def test_what_pyautogui_says_of_no_place(text: str) -> None:
    with pytest.raises(Inexpressible):
        from_pyautogui(text, SHARES)


def test_browsergym_ids_name_no_place() -> None:
    for text in ("click('a51')", "fill('237', 'x')", "mouse_down(1, 2)"):
        with pytest.raises(Inexpressible, match="an action cannot express BrowserGym's"):
            from_browsergym(text, LARGE)


def test_holo_forms() -> None:
    assert to_holo(Click(x=10, y=20, element="OK"), RELATIVE, "browser") == [
        {"action": "click_element", "element": "OK", "x": 10, "y": 20}
    ]
    assert to_holo(Type(text="a", x=500, y=500, enter=True), LARGE, "browser") == [
        {"action": "write_element_abs", "content": "a", "element": "", "x": 960, "y": 540}
    ]
    assert to_holo(Press(keys="Control+Shift+T", repeat=2), RELATIVE, "desktop") == [
        {"action": "hotkey", "keys": ["ctrl", "shift", "t"], "repeat": 2}
    ]
    call = {"name": "hotkey", "arguments": {"keys": ["ctrl", "a"], "repeat_count": 2}}
    assert from_holo([call], RELATIVE) == [Press(keys="Control+A", repeat=2)]
    held = {"tool_name": "hold_and_tap_key_desktop", "hold_keys": ["alt"], "tap_keys": ["tab", "tab"]}
    assert from_holo([held], RELATIVE) == [Press(keys="Alt+Tab", repeat=2)]
    drag = [{"action": "move_to", "x": 1, "y": 2}, {"action": "drag_to", "x": 3, "y": 4}]
    assert from_holo(drag, RELATIVE) == [Drag(x=1, y=2, to_x=3, to_y=4)]
    with pytest.raises(Inexpressible, match="where the pointer happens to be"):
        from_holo(drag[1:], RELATIVE)
    assert from_holo([{"action": "restart"}], RELATIVE, start_url="https://a.b") == [Goto(url="https://a.b")]
    assert from_holo(drag[1:], RELATIVE, pointer=(7, 8)) == [Drag(x=7, y=8, to_x=3, to_y=4)]
    written = {"action": "write_element_abs", "content": "a", "element": "", "x": 1, "y": 2}
    assert from_holo([written], RELATIVE) == [Type(text="a", x=1, y=2, clear=True, enter=True)]
    at = {"tool_name": "write_at_desktop", "content": "a", "element": "box", "x": 1, "y": 2, "overwrite": True}
    assert from_holo([at], RELATIVE) == [Type(text="a", x=1, y=2, clear=True, element="box")]
    for name in ("restart", "key_down", "key_up", "update_plan"):
        with pytest.raises(Inexpressible, match=name):
            from_holo([{"action": name, "key": "a"}], RELATIVE)


def test_the_same_numbers_mean_different_places_in_different_spaces() -> None:
    call = [{"action": "click_element", "element": "", "x": 640, "y": 400}]
    assert from_holo(call, Space("relative", 1280, 800)) == [Click(x=640, y=400)]
    assert from_holo(call, Space("pixels", 1280, 800)) == [Click(x=500, y=501)]


# ---- hostile input ----

READERS: list[Callable[[Any], Any]] = [
    lambda value: from_openai(value, LARGE),
    lambda value: from_anthropic([value], LARGE),
    lambda value: from_holo([value], LARGE),
    lambda value: from_anthropic(value, LARGE),
    lambda value: from_qwen([value], LARGE, (1, 2)),
    lambda value: from_holo(value, LARGE),
    lambda value: from_uitars(value, LARGE),
    lambda value: from_browsergym(value, LARGE),
    lambda value: from_pyautogui(value, LARGE, (1, 2)),
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "type",
        "action",
        "x",
        "y",
        "keys",
        "text",
        "path",
        "coordinate",
        "button",
        "scroll_x",
        "scroll_y",
        "scroll_amount",
        "duration",
        "content",
    ]
)
FOREIGN_KINDS = st.sampled_from(
    [
        "click",
        "drag",
        "keypress",
        "scroll",
        "type",
        "key",
        "wait",
        "left_click",
        "left_click_drag",
        "hotkey",
        "write",
        "computer_call",
        "message",
    ]
)
VALUES = st.dictionaries(NAMES, JUNK | FOREIGN_KINDS, max_size=6)


@settings(deadline=None)
@given(JUNK | VALUES | st.builds(lambda kind, rest: {**rest, "type": kind, "action": kind}, FOREIGN_KINDS, VALUES))
def test_junk_is_an_action_error(value: Any) -> None:
    for read in READERS:
        try:
            found = read(value)
        except ActionError:
            continue
        assert isinstance(found, list)


CALL_PIECES = st.sampled_from(
    ["click", "type", "mouse_click", "scroll", "noop", "(", ")", ",", "=", "'", '"', "\\", "point", "content", "1", "-",
     "1e9", "[", "]", "<point>", "\n", " ", ";", "None", "__import__", ".", "0x1", "\\x4", "\\U99999999", "\ud800"]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(CALL_PIECES, max_size=14).map("".join) | st.text(st.characters(), max_size=30))
@example("click(" * 20_000)
@example("(" * 90_000)
@example("[" * 90_000)
@example("type(content='" + "\\" * 90_001 + "')")
@example("noop(" + "9" * 50_000 + ")")
@example("noop(1e400)")
@example("mouse_click(__import__('os').system('true'), 1)")
@example("type(content='\\ud800')")
@example("goto(f'{1}')")
def test_junk_strings_are_action_errors(text: str) -> None:
    for read in (from_uitars, from_browsergym, from_pyautogui):
        try:
            read(text, LARGE)
        except ActionError:
            continue


@settings(deadline=None)
@given(TEXT, TEXT)
def test_texts_in_calls(one: str, other: str) -> None:
    [call] = parse_calls(format_call("f", one, 3, -2.5, None, True, name=other))
    assert call.positional == [one, 3, -2.5, None, True]
    assert call.named == {"name": other}
    assert ast.literal_eval(format_call("f", one)[2:-1]) == one


def test_every_kind_can_be_said_by_keys_and_mouse() -> None:
    for action in EVERY_KIND:
        assert to_openai(action, LARGE)["type"] in ("computer_call", "message")
        assert to_uitars(action, LARGE)
