"""Plain pages: each task can be done in a small window, and nothing but what is asked for is success."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from typer.testing import CliRunner

from holotron.actions.action import Action, Click, Select, Type
from holotron.agent.agent import Ending
from holotron.cli.main import app
from holotron.env.browser.environment import BrowserEnv
from holotron.episodes.store import EpisodeStore
from holotron.suites.plain.suite import plain_tasks
from holotron.suites.suite import HELD_OUT_SEEDS, find_suite
from tests.suites.miniwob_driver import needs_chromium

VIEW = (800, 600)
# What each task needs, in order: what is pressed, or a field and what goes into it.
LOGIN = {"walter": ("walter", "tomato7"), "rosa": ("rosa", "bean42"), "herbert": ("herbert", "spade99")}
SOLUTIONS: dict[str, list[str | tuple[str, str]]] = {
    **{
        f"login/{name}": [("[name=member]", user), ("[name=secret]", word), "[type=submit]"]
        for name, (user, word) in {**LOGIN, "mistaken": ("walter", "carrot1")}.items()
    },
    "search/owl": [("#q", "owl"), "#go", ".bird:nth-of-type(2) a"],
    "search/first": [("#q", "owl"), "#go", ".bird a"],
    "search/robin": [("#q", "robin"), "#go", ".bird a"],
    "search/little": [("#q", "little owl"), "#go", ".bird a"],
    "search/kingfisher": [("#q", "kingfisher"), "#go"],
    "todo/torch": ["li:nth-child(4) input", ("#thing", "Matches"), "button"],
    "todo/tent": ["li:nth-child(1) input"],
    "todo/map": ["li:nth-child(5) input"],
    "todo/camera": [("#thing", "Camera"), "button"],
    "todo/both": ["li:nth-child(1) input", "li:nth-child(3) input"],
    "contact/delivery": [
        ("#name", "Ada Byron"),
        ("#mail", "ada@post.example"),
        ("#message", "Do you deliver?"),
        "button",
    ],
    "contact/name": [("#name", "Tom Reed"), "button"],
    "contact/chain": [("#topic", "Repair"), ("#message", "My chain is loose"), "button"],
    "contact/copy": [("#mail", "kim@post.example"), "#copy", "button"],
    "contact/hello": [("#message", "hello"), "button"],
    "settings/reminder": ["#due", "#save"],
    "settings/news": ["#news", "#save"],
    "settings/large": ["[value=Large]", "#save"],
    "settings/language": [("#language", "French"), "#save"],
    "settings/name": [("#shown", "Mira K"), "#save"],
    "shop/sencha": [".card:nth-child(3) button"],
    "shop/two": [".card:nth-child(2) button", ".card:nth-child(6) button"],
    "shop/green": [".kinds button:nth-child(3)"],
    "shop/order": [".card:nth-child(4) button", "#open", ".basket > button"],
    "shop/basket": ["#open"],
}


async def action_for(env: BrowserEnv, step: str | tuple[str, str]) -> Action:
    """Of a selector, what is done at its middle, which is scrolled into view before."""
    selector, text = (step, None) if isinstance(step, str) else step
    where = f"document.querySelector({json.dumps(selector)})"
    await env.evaluate(f"{where}.scrollIntoView({{block: 'nearest'}})")
    found = await env.evaluate(
        f"(({{left, top, width, height}}) => [left + width / 2, top + height / 2])({where}.getBoundingClientRect())"
    )
    x, y = (round(1000 * place / side) for place, side in zip(found, VIEW, strict=True))
    if text is None:
        return Click(x=x, y=y)
    if await env.evaluate(f"{where}.tagName") == "SELECT":
        return Select(x=x, y=y, option=text)
    return Type(x=x, y=y, text=text, clear=True)


@needs_chromium
def test_plain_pages_tell_success_only_when_all_is_done_and_nothing_else() -> None:
    suite, ended = find_suite("plain"), Ending(reason="answered")
    suite.view = VIEW

    async def success(pool: object, name: str, steps: list[str | tuple[str, str]]) -> bool:
        task = suite.task(name, HELD_OUT_SEEDS[0])
        async with suite.begin(pool, task) as env:
            assert (env.size, env.instruction) == (VIEW, plain_tasks()[name]["task"])
            for step in steps:
                await env.act(await action_for(env, step))
            return bool((await suite.judge(env, task, ended, "full")).success)

    async def run() -> list[tuple[str, bool, bool]]:
        async with suite.pool(1) as pool:
            return [
                (name, await success(pool, name, steps[:-1]), await success(pool, name, steps))
                for name, steps in SOLUTIONS.items()
            ]

    assert sorted(asyncio.run(run())) == sorted((name, False, True) for name in suite.names())


@needs_chromium
def test_they_are_played_from_the_command_line_in_a_window_of_any_size(tmp_path: Path) -> None:
    words = ["eval", "plain", "--baseline", "random", "--tasks", "todo/tent,shop/basket", "--size", "640x480"]
    done = CliRunner().invoke(app, [*words, "--sessions", "2", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.stderr
    assert [(row["task"], row["groups"]) for row in json.loads(done.stdout)["tasks"]] == [
        ("todo/tent", ["todo"]),
        ("shop/basket", ["shop"]),
    ]
    store = EpisodeStore(tmp_path)
    steps = [step for info in store.list_episodes() for step in store.steps(info.id)]
    assert {(step.observation.width, step.observation.height) for step in steps} == {(640, 480)}
