"""What the operator sees of a cluster: what has happened between two looks, and the page that shows it."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from holotron.scale.cluster_page import create_cluster_page
from holotron.scale.watch import ClusterWatch, changes, look_at, with_rates
from tests.web.browser import serving_app, watching

HOSTILE = "<img src=x onerror=alert(1)> " + "a-name-without-an-end" * 6
SEEN: dict[str, Any] = {
    "machines": [
        {"address": f"10.0.0.{number}", "alive": number != 4, "cpus": 16.0, "gpus": float(number < 3)}
        for number in range(1, 6)
    ],
    "hosts": [
        {
            "name": f"3f2a91c0-{number}",
            "state": "up",
            "machine": f"node-{number + 1}",
            "pid": 4000 + number,
            "version": "0.9",
            "suite": "miniwob",
            "playing": ["click-checkboxes", "book-flight", "use-autocomplete", "email-inbox"][: number + 1],
            "finished": 1200 + 7 * number,
            "lost": number // 3,
            "steps": 9000 + 100 * number,
        }
        for number in range(4)
    ]
    + [{"name": "3f2a91c0-4", "state": "waits for a machine, or is being started"}],
    "replicas": [
        {
            "name": str(number),
            "host": f"10.0.0.{number + 1}",
            "pid": 300 + number,
            "state": ("up", "up", "draining", "down")[number],
            "sessions": 64 - number,
            "turns": 12,
            "restarts": int(number == 3),
            "engine": {"generated_tokens": 1e6, "page_share": 0.62},
        }
        for number in range(4)
    ],
    "open_sessions": 249,
    "moved": 12,
    "rebuilt": 3,
    "lost": 0,
}


def later() -> dict[str, Any]:
    """The same cluster after two seconds in which much has happened."""
    seen = copy.deepcopy(SEEN)
    seen["machines"][3]["alive"], seen["machines"][4]["alive"] = True, False
    for number, host in enumerate(seen["hosts"][:4]):
        host["steps"] += 10 + number
    seen["hosts"][1] |= {"pid": 5000, "steps": 3}
    seen["hosts"][2]["playing"] = [HOSTILE]
    seen["hosts"].append({"name": HOSTILE, "state": "is being started again"})
    seen["replicas"][0]["engine"]["generated_tokens"] += 500
    seen["replicas"][1]["restarts"] = 1
    seen["replicas"][2]["state"] = "up"
    del seen["replicas"][3]
    return seen | {"moved": 15, "lost": 1}


def test_events_are_what_differs_between_two_looks() -> None:
    assert changes(SEEN, SEEN) == []
    assert changes({}, SEEN) == []  # the first look of a part that could not be asked before
    assert changes(SEEN, later()) == [
        "machine 10.0.0.4 joined",
        "machine 10.0.0.5 is gone",
        "host 3f2a91c0-1 died and was started again",
        f"host {HOSTILE} was added",
        "replica 1 died and was started again",
        "replica 2: up",
        "replica 3 has ended",
        "3 sessions moved",
        "1 session lost",
    ]


def test_rates_are_those_of_the_same_process() -> None:
    found = with_rates(SEEN, later(), 2.0)
    assert [host["steps_per_second"] for host in found["hosts"]] == [5.0, 0.0, 6.0, 6.5, 0.0, 0.0]
    assert (found["steps_per_second"], found["tokens_per_second"]) == (17.5, 250.0)


def test_what_cannot_be_asked_is_told() -> None:
    watch = ClusterWatch(lambda: look_at(None, "http://127.0.0.1:1/v1", None))
    watch.look()
    [problem] = watch.told()["problems"]
    assert "cannot be asked" in problem


def test_the_page_follows_the_cluster_and_runs_nothing_of_it() -> None:
    looks = iter([SEEN, later()])
    watch = ClusterWatch(lambda: (next(looks), [f"10.0.0.9 cannot be asked: {HOSTILE}"]))
    watch.look()

    async def see(home: str) -> None:
        async with watching(home) as watched:
            page = await watched.open()
            assert await page.locator("#figures").inner_text() != ""
            assert "Nothing since" in await page.locator("#events").inner_text()
            watch.look()
            await page.get_by_text("3 sessions moved").wait_for()
            assert HOSTILE in await page.locator("#hosts").inner_text()
            assert await page.locator("#replicas tbody tr").count() == 3
            assert await page.locator("img").count() == 0
            for width in (400, 1280):
                await page.set_viewport_size({"width": width, "height": 900})
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    with serving_app(create_cluster_page(watch)) as home:
        asyncio.run(see(home))
