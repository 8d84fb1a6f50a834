"""Episodes done again: nothing changed is the same, and what changed is named, step by step."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager

import pytest
from PIL import Image

from holotron.actions.action import Answer, Click, Scroll, Select, Type
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.errors import ActionFailed
from holotron.env.safety.policy import SafetyPolicy
from holotron.env.safety.secrets import Secret, Secrets
from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo, ObservationRecord, Outcome, PolicyInfo, Result, Step, StepAction
from holotron.episodes.replay import ReplayError, _episodes_own, compare, replay
from holotron.episodes.store import EpisodeStore
from tests.env.site import Site

SIZE = (400, 300)
STYLE = (
    "<style>body { margin: 0 } * { font: 24px sans-serif; caret-color: transparent } a, input, select, p {"
    " position: absolute; left: 10px; width: 250px; height: 40px; margin: 0 }</style>"
)
START = f'<title>start</title>{STYLE}<a style="top: 10px" href="/form">Go to the form</a>'
FORM = (
    f"<title>form</title>{STYLE}<p style='top: 120px'>42 boxes</p><input style='top: 10px'>"
    "<select style='top: 60px'><option>red<option>blue</select>"
)
ACTIONS = [
    Click(x=200, y=100),
    Type(text="hello", x=200, y=100),
    Select(x=200, y=266, option="blue"),
    Scroll(direction="down"),
    Answer(text="done"),
]


async def record(store, browsers, site, actions, episode_id):
    """An episode as the loop would leave it."""
    task = Task(text="Fill in the form.", url=f"{site.origin}/")
    environment = EnvironmentInfo(name="browser", viewport=SIZE)
    async with await BrowserEnv.open(browsers, options(site)) as env:
        await env.goto(f"{site.origin}/")
        with store.begin(task, PolicyInfo(model="by hand"), environment, episode_id=episode_id) as writer:
            for index, action in enumerate(actions):
                observation = await env.observe()
                result = Result()
                if not isinstance(action, Answer):
                    try:
                        await env.act(action)
                    except ActionFailed as error:
                        result = Result(ok=False, error=str(error))
                looked = ObservationRecord(
                    width=observation.width, height=observation.height, url=observation.url, title=observation.title
                )
                done = StepAction.of(action, observation.width, observation.height)
                writer.add_step(Step(index=index, observation=looked, action=done, result=result), observation.image)
            writer.finish(Outcome(reason="answered"))


def options(site, **more):
    return EnvOptions(width=SIZE[0], height=SIZE[1], safety=SafetyPolicy([site.origin]), **more)


@asynccontextmanager
async def stage(folder):
    with Site({"/": START, "/form": FORM}) as site:
        async with Browsers() as browsers:
            yield EpisodeStore(folder / "store"), browsers, site


async def test_the_same_and_what_changed(folder):
    async with stage(folder) as (store, browsers, site):
        await record(store, browsers, site, ACTIONS, "filled")

        async def again(**more):
            # Sizes that the episode does not have are overruled by those it has.
            wide = EnvOptions(safety=SafetyPolicy([site.origin]))
            return await replay(store, "filled", browsers, **({"options": wide} | more))

        report = await again(out=folder / "none")
        assert report.same
        assert [step.status for step in report.steps] == ["same"] * 5
        assert [step.difference.size for step in report.steps] == [SIZE] * 5
        assert list((folder / "none").iterdir()) == []
        assert report.to_dict()["counts"] == {"same": 5, "changed": 0, "failed": 0}

        # One digit of the second page: it is seen from the second step on, and where it is.
        site.pages["/form"] = FORM.replace("42 boxes", "43 boxes")
        told = []
        report = await again(out=folder / "pictures", on_step=told.append)
        assert not report.same
        assert report.indices("changed") == [1, 2, 3, 4]
        assert tuple(told) == report.steps
        difference = report.steps[1].difference
        left, top, right, bottom = difference.box
        assert (left >= 10, top >= 120, right <= 60, bottom <= 160) == (True,) * 4
        assert difference.largest > 100
        assert 0 < difference.share < 0.01
        pictures = sorted((folder / "pictures").iterdir())
        assert [step.picture for step in report.steps] == [None, *map(str, pictures)]
        assert Image.open(pictures[0]).size == (2 * SIZE[0] + 12, SIZE[1])
        assert (await again(tolerance=0.01)).same

        # The list is gone: the step that chose from it fails, and ends the replay unless told to go on.
        site.pages["/form"] = FORM.replace("select", "textarea")
        report = await again()
        assert [step.status for step in report.steps] == ["same", "changed", "failed"]
        assert report.total == 5
        assert not report.same
        report = await again(go_on=True)
        assert len(report.steps) == 5
        assert report.indices("failed") == [2]

        with pytest.raises(ReplayError, match=r"cannot be opened.*private network"):
            await again(options=None)
        with pytest.raises(ValueError, match="tolerance is 2"):
            await again(tolerance=2)


async def test_secrets_stay_out_and_failures_of_then_are_no_news(folder):
    async with stage(folder) as (store, browsers, site):
        # Nothing to choose from at the second page's top: it fails now as it did then.
        await record(store, browsers, site, [ACTIONS[0], Select(x=200, y=100, option="x")], "failing")
        assert (await replay(store, "failing", browsers, options=options(site))).same
        site.pages["/form"] = FORM.replace("<input style='top: 10px'>", "<select style='top: 10px'><option>x</select>")
        report = await replay(store, "failing", browsers, options=options(site))
        assert report.indices("changed") == [1]
        assert "works now" in report.steps[1].detail
        site.pages["/form"] = FORM

        secret = Type(text="{{secret:pw}}", x=200, y=100, enter=True)
        task, policy = Task(text="Log in.", url=f"{site.origin}/form"), PolicyInfo(model="by hand")
        with store.begin(task, policy, EnvironmentInfo(name="browser"), episode_id="secret") as writer:
            observation = ObservationRecord(width=SIZE[0], height=SIZE[1])
            writer.add_step(Step(index=0, observation=observation, action=StepAction.of(secret, *SIZE)))
            writer.add_step(Step(index=1, observation=observation))
        owned = options(site, secrets=Secrets({"pw": Secret("hunter2", [site.origin])}))
        report = await replay(store, "secret", browsers, options=owned, go_on=True)
        assert [step.status for step in report.steps] == ["failed", "same"]
        assert "never" in report.steps[0].detail
        assert report.steps[0].difference is None
        assert not any(b"hunter2" in body for body in site.bodies)
        assert not any("hunter2" in hit for hit in site.hits)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (None, "does not say"),
        ("https://x/?k={{secret:key}}", "secret"),
        ("miniwob:click-test", "only episodes on web sites"),
    ],
)
def test_episodes_that_cannot_begin(folder, url, says):
    store = EpisodeStore(folder)
    store.begin(Task(text="x", url=url), PolicyInfo(model="m"), EnvironmentInfo(name="e"), episode_id="empty").close()
    with pytest.raises(ReplayError, match=says):
        asyncio.run(replay(store, "empty", Browsers()))


def test_a_replay_is_bound_to_what_the_episode_visited():
    seen = ("https://shop.example/a", "https://user@pay.example:8443/b", "http://127.0.0.1:9/", "about:blank", "")
    steps = [Step(index=i, observation=ObservationRecord(width=1, height=1, url=url)) for i, url in enumerate(seen)]
    policy = _episodes_own("http://start.example/", steps)
    for url in ("http://start.example/x", "https://shop.example/", "https://pay.example:8443/"):
        assert policy.refusal(url) is None
    for url in ("https://other.example/", "https://start.example/", "http://127.0.0.1:9/", "https://pay.example/"):
        assert policy.refusal(url)


def test_comparing_pictures():
    def png(size=(10, 8), dot=None):
        image = Image.new("RGB", size, (200, 200, 200))
        if dot is not None:
            image.putpixel(dot, (200, 190, 200))
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return buffer.getvalue()

    same = compare(png(), png())
    assert (same.share, same.largest, same.box) == (0.0, 0, None)
    one = compare(png(), png(dot=(3, 5)))
    assert (one.share, one.largest, one.box) == (pytest.approx(1 / 80), 10, (3, 5, 4, 6))
    other = compare(png(), png((10, 9)))
    assert (other.share, other.recorded_size, other.size, other.box) == (1.0, (10, 8), (10, 9), None)
