"""What a seed draws never moves: measured results belong to these pages. A hash for each template tells.

After a change that is meant to move them: `python -m tests.suites.test_drawn_pages` writes the hashes anew.
"""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest

from holotron.suites.pages.builder import PageBuilder
from holotron.suites.pages.data import read_data
from holotron.suites.pages.task import all_templates, draw_task
from holotron.suites.screens.pages import make_page
from holotron.suites.screens.rendering import Document
from holotron.suites.screens.templates import HELD_OUT, TEMPLATES
from holotron.suites.screens.widgets import make_widgets

HASHES = Path(__file__).with_name("drawn_pages.json")
SEED = 5
MANY_SEEDS = range(40)


def hashed(*parts: object) -> str:
    return sha256(json.dumps(parts, ensure_ascii=False).encode()).hexdigest()[:16]


def hash_of_screen(document: Document) -> str:
    return hashed(document.html, document.width, document.height, dict(document.about))


def page_hashes() -> dict[str, str]:
    tasks = [draw_task(template.name, SEED) for template in all_templates()]
    return {f"pages/{task.template}": hashed(task.text, task.html, task.viewport, task.held_out) for task in tasks}


def screen_hashes() -> dict[str, str]:
    """Of each template the first screen that is drawn."""
    wanted = {f"screens/{name}" for name in (*TEMPLATES, *HELD_OUT)}
    found: dict[str, str] = {}
    for seed in count():
        for held_out in (False, True):
            document = make_page(seed, held_out=held_out)
            found.setdefault(f"screens/{document.about['template']}", hash_of_screen(document))
        if found.keys() == wanted:
            return found
    raise AssertionError("unreachable")


def widget_hashes() -> dict[str, str]:
    return {"screens/widgets": hashed([hash_of_screen(make_widgets(seed)) for seed in MANY_SEEDS])}


@pytest.mark.parametrize("hashes", [page_hashes, screen_hashes, widget_hashes])
def test_what_a_seed_draws_has_not_moved(hashes) -> None:  # type: ignore[no-untyped-def]
    kept = json.loads(HASHES.read_text())
    assert {name: value for name, value in hashes().items() if kept.get(name) != value} == {}


def test_every_hash_belongs_to_a_template() -> None:
    assert json.loads(HASHES.read_text()).keys() == (page_hashes() | screen_hashes() | widget_hashes()).keys()


def test_every_wording_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: set[str] = set()
    saying = PageBuilder.saying

    def noted(builder: PageBuilder, name: str) -> str:
        drawn.add(name)
        return saying(builder, name)

    monkeypatch.setattr(PageBuilder, "saying", noted)
    for template in all_templates():
        for seed in MANY_SEEDS:
            draw_task(template.name, seed)
    assert drawn == read_data("wordings").keys()


if __name__ == "__main__":
    HASHES.write_text(json.dumps(page_hashes() | screen_hashes() | widget_hashes(), indent=2) + "\n")
