"""Pages in the looks of UI libraries: which parts get which classes, what is kept of a package, what is held out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holotron.agent.agent import Budget
from holotron.agent.policy_format import NANO
from holotron.episodes.record import PolicyInfo
from holotron.episodes.store import EpisodeStore
from holotron.suites.libraries.dressing import draw_library_task
from holotron.suites.libraries.fetch import CLIENTS, chosen_files
from holotron.suites.libraries.manifest import (
    HERE,
    VARIABLE,
    LibrariesMissing,
    all_libraries,
    libraries,
    look_of,
    require_libraries,
    sheet_of,
)
from holotron.suites.libraries.suite import TEMPLATES, LibrariesSuite
from holotron.suites.pages.task import is_held_out
from holotron.suites.play import Play, play_tasks
from holotron.suites.screens.sources import Sources
from holotron.suites.suite import HELD_OUT_SEEDS, SuiteError, find_suite
from tests.suites.miniwob_driver import needs_chromium

TINY = Path(__file__).with_name("ui_libraries")
FIRST = HELD_OUT_SEEDS[0]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[LibrariesSuite]:
    """The suite over libraries of our own."""
    monkeypatch.setenv(VARIABLE, str(TINY))
    all_libraries.cache_clear()
    suite = find_suite("libraries")
    assert isinstance(suite, LibrariesSuite)
    yield suite
    all_libraries.cache_clear()


def test_the_manifest_names_libraries_that_can_be_fetched_and_dressed() -> None:
    found = all_libraries()
    assert sum(not each.held_out for each in found.values()) >= 25
    assert sum(each.held_out for each in found.values()) >= 8
    for library in found.values():
        assert library.version in " ".join(CLIENTS[library.registry](library))
        assert library.licence
        assert library.sheet or library.pages
        if library.sheet:
            assert look_of(library)["accent"]
    packages = [{(each.registry, each.package) for each in libraries(held_out)} for held_out in (False, True)]
    assert not packages[0] & packages[1]
    looks = [{each.look or each.name for each in libraries(held_out) if each.sheet} for held_out in (False, True)]
    assert not looks[0] & looks[1]
    assert looks[0] | looks[1] == {path.stem for path in (HERE / "looks").glob("*.toml")}


def test_only_parts_that_there_are_have_rules() -> None:
    parts = (HERE / "dress.js").read_text().split("const PARTS = {")[1].split("};")[0]
    known = {line.split(":")[0].strip() for line in parts.splitlines() if ":" in line}
    for path in (HERE / "looks").glob("*.toml"):
        look = look_of(replace(next(iter(all_libraries().values())), name=path.stem, look=path.stem))
        used = {part for table in ("parts", "around", "after") for part in look.get(table, {})}
        assert used <= known, path.name


def test_classes_of_a_sheet_are_prefixed_and_nothing_else(tiny: LibrariesSuite) -> None:
    css = sheet_of(all_libraries()["tiny"])
    assert "@import" not in css
    assert "@font-face" not in css
    assert ".x-btn.x-btn-main { background: #7a1f5c" in css
    assert "padding: .5em 1em" in css
    assert "http://www.w3.org/2000/svg" in css


def test_of_a_package_only_what_is_named_is_kept(tmp_path: Path) -> None:
    library = replace(next(iter(all_libraries().values())), sheet="a.css", pages=("demo",))
    files = {
        "a.css": "x",
        "demo/one.html": "<link href=theme.css>" + " " * 300,
        "demo/tiny.html": "x",
        "demo/theme.css": "b { background: url(dot.png) }",
        "demo/dot.png": "",
        "demo/unused.png": "",
        "demo/large.html": " " * 500_000,
        "elsewhere.html": " " * 300,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    kept = [str(path.relative_to(tmp_path)) for path in chosen_files(library, tmp_path)]
    assert sorted(kept) == ["a.css", "demo/dot.png", "demo/one.html", "demo/theme.css"]


def test_what_was_not_fetched_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(LibrariesMissing, match="holotron data fetch-libraries"):
        require_libraries()


def test_libraries_are_split_and_seeds_say_other_things_in_each(tiny: LibrariesSuite) -> None:
    assert tiny.names("train") == tuple(f"tiny/{template}" for template in TEMPLATES)
    assert tiny.names("held-out") == tuple(f"other/{template}" for template in TEMPLATES)
    assert not any(is_held_out(template) for template in TEMPLATES)
    with pytest.raises(SuiteError, match="held out"):
        tiny.select(["other/login"], training=True)
    found = all_libraries()
    drawn = [draw_library_task(found[name], "login", seed)[0] for name in ("tiny", "other") for seed in (3, FIRST + 3)]
    assert len({task.text for task in drawn}) == 4
    assert drawn[0] == draw_library_task(found["tiny"], "login", 3)[0]


@needs_chromium
def test_teachers_solve_tasks_in_every_look_and_parts_are_dressed(tiny: LibrariesSuite, tmp_path: Path) -> None:
    names = ["tiny/tabs_button", "tiny/mosaic_parts", "other/mosaic_rows"]
    play = Play(tiny, tmp_path, PolicyInfo(model="x"), NANO, Budget(steps=25), "full", True)
    asyncio.run(play_tasks(play, tiny.tasks(names, [FIRST]), None, sessions=4))
    outcomes = {each.task.name: each.outcome for each in EpisodeStore(tmp_path).list_episodes()}
    assert {name: outcome is not None and outcome.success for name, outcome in outcomes.items()} == dict.fromkeys(
        names, True
    )

    async def classes() -> list[object]:
        async with tiny.pool(1) as pool, tiny.begin(pool, tiny.task("tiny/tabs_button", FIRST)) as env:
            seen = await env.evaluate(
                "[...document.querySelectorAll('.tabs > div')].map((tab) => "
                "[tab.matches('.now'), tab.matches('.x-nav-tab.x-is-on'), tab.getAttribute('aria-selected')])"
            )
            await env.evaluate("document.querySelector('.tabs > div:last-child').click()")
            last = await env.evaluate("document.querySelector('.tabs > div:last-child').className")
            root = await env.evaluate("document.documentElement.dataset.tone")
            return [seen, last, root]

    seen, last, root = asyncio.run(classes())
    assert all(now == dressed == (said == "true") for now, dressed, said in seen)  # type: ignore[attr-defined]
    assert "x-is-on" in str(last)
    assert root == "warm"


@needs_chromium
async def test_screens_of_libraries_show_what_is_asked_about(tiny: LibrariesSuite) -> None:
    # Of each split a page dressed in the look and a page that was shipped.
    found = set()
    for held_out, seeds in ((False, (0, 6)), (True, (1, 2))):
        async with Sources(held_out=held_out) as sources:
            for seed in seeds:
                for sample in await sources.samples("libraries", seed + FIRST * held_out):
                    found.add((sample.about["library"], sample.about["kind"]))
    found = found
    assert {name for name, _ in found} == {"tiny", "other"}
    assert ("tiny", "shipped") in found
    assert ("other", "shipped") in found
