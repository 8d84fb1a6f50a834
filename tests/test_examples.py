"""The programs in examples/ run, with a scripted model behind an address."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

from tests.agent.replies import act
from tests.agent.scripted_server import scripted_server
from tests.suites.miniwob_driver import needs_chromium

EXAMPLES = Path(__file__).parents[1] / "examples"
DELETE, LOOK = act("click", x=150, y=520), act("hover", x=1, y=1)
DONE = act("answer", text="at nine")
ANSWERS = {
    "run_a_task": ([DONE], "answered after 1 steps: at nine"),
    "many_at_once": ([DONE], "Is there a log-in form? answered: at nine"),
    "extract": ([DONE, {"opens": "9:00", "closes": "17:00"}], "opens='9:00' closes='17:00'"),
    "watch_and_stop": ([LOOK], "stopped two steps are enough"),
    "ask_first": ([DELETE, DONE], "was not confirmed"),
    "secrets_typed": ([act("type", text="{{secret:password}}", x=200, y=160), DONE], "holds the password: False"),
    "record_and_film": ([LOOK, DONE], "USD at prices of your own"),
    "agent_by_hand": ([DONE], "/login answered at nine"),
    "play_a_suite": ([LOOK], "0 of 2 solved in 6 steps"),
    "sessions": ([], "the same again: True"),
}


def test_all_examples_are_listed_and_tried():
    programs = {path.stem for path in EXAMPLES.glob("*.py")} - {"pages"}
    assert programs == set(ANSWERS)
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"]({name}.py)" in readme for name in programs)


# The others take as long again, each with a browser of its own: `make examples` runs all of them.
QUICK = ("extract", "ask_first", "secrets_typed", "sessions")


@needs_chromium
@pytest.mark.parametrize("name", ANSWERS if os.environ.get("HOLOTRON_ALL_EXAMPLES") else QUICK)
def test_an_example_runs(name, monkeypatch, capsys):
    answers, says = ANSWERS[name]
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr("holotron.episodes.run.SIZE", (640, 400))
    with scripted_server(*answers or [DONE]) as server:
        monkeypatch.setitem(os.environ, "HOLOTRON_ENDPOINT", server.url)
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert says in capsys.readouterr().out
