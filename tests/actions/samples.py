"""Actions for tests: one of each kind, and a strategy for all there can be."""

from __future__ import annotations

from hypothesis import strategies as st

from holotron.actions.action import (
    Action,
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
from holotron.actions.keys import MODIFIERS, NAMED_KEYS, join_keys

COORDINATE = st.integers(0, 1000)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
URL = st.from_regex(r"https://[a-zé]{1,9}\.com/[a-z0-9?=&#']{0,20}", fullmatch=True)
MAIN_KEYS = st.sampled_from(NAMED_KEYS) | st.characters(codec="utf-8", categories=("L", "N", "P", "S"))
KEYS = st.builds(lambda held, key: join_keys([*held, key]), st.lists(st.sampled_from(MODIFIERS), max_size=3), MAIN_KEYS)
POINT = {"x": COORDINATE, "y": COORDINATE}


def actions() -> st.SearchStrategy[Action]:
    return st.one_of(
        st.builds(Click, **POINT, button=st.sampled_from(["left", "right", "middle"]), element=TEXT),
        st.builds(DoubleClick, **POINT, element=TEXT),
        st.builds(Hover, **POINT, element=TEXT),
        st.builds(Drag, **POINT, to_x=COORDINATE, to_y=COORDINATE),
        st.builds(Type, text=TEXT, clear=st.booleans(), enter=st.booleans(), element=TEXT),
        st.builds(Type, text=TEXT, **POINT, clear=st.booleans(), enter=st.booleans(), element=TEXT),
        st.builds(Press, keys=KEYS, repeat=st.integers(1, 100)),
        st.builds(Scroll, direction=st.sampled_from(["up", "down", "left", "right"]), amount=st.integers(1, 1000)),
        st.builds(
            Scroll, direction=st.sampled_from(["up", "down", "left", "right"]), amount=st.integers(1, 1000), **POINT
        ),
        st.builds(Select, **POINT, option=TEXT),
        st.builds(Goto, url=URL),
        st.sampled_from([Back(), Forward(), Refresh(), NewTab(), CloseTab()]),
        st.builds(Wait, seconds=st.floats(0, 300)),
        st.builds(NewTab, url=URL),
        st.builds(SwitchTab, index=st.integers(0, 99)),
        st.builds(CloseTab, index=st.integers(0, 99)),
        st.builds(Answer, text=TEXT),
        st.builds(Infeasible, reason=TEXT),
    )


EVERY_KIND: list[Action] = [
    Click(x=10, y=990),
    Click(x=10, y=990, button="right", element="the menu"),
    DoubleClick(x=0, y=1000),
    Hover(x=5, y=6),
    Drag(x=1, y=2, to_x=3, to_y=4),
    Type(text="héllo\n", x=5, y=6, clear=True, enter=True),
    Type(text=""),
    Press(keys="Control+A"),
    Press(keys="ArrowDown", repeat=3),
    Scroll(direction="down"),
    Scroll(direction="left", amount=30, x=1, y=2),
    Select(x=1, y=2, option="Blue"),
    Goto(url="https://example.com/?q=1"),
    Back(),
    Forward(),
    Refresh(),
    Wait(seconds=2),
    Wait(seconds=0.5),
    NewTab(),
    NewTab(url="https://example.com"),
    SwitchTab(index=2),
    CloseTab(),
    CloseTab(index=0),
    Answer(text="42"),
    Infeasible(reason="there is no such button"),
]
