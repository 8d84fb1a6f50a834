"""Labels by pages, models and judges: what agrees is accepted, the rest is kept, and nothing that was paid is lost."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from typer.testing import CliRunner

from holotron.agent.chat import Message, Reply
from holotron.cli.main import app
from holotron.episodes.datasets.importer import import_dataset
from holotron.episodes.datasets.settings import ImportSettings
from holotron.episodes.errors import EpisodeError
from holotron.episodes.labels import Decision, Label, LabelFolder
from holotron.episodes.store import EpisodeStore
from holotron.eval.annotation.accepted import write_accepted
from holotron.eval.annotation.annotate import Annotation, AnnotationSettings
from holotron.eval.annotation.inputs import InputError, find_inputs, video_frames
from holotron.eval.annotation.pages import PageSource
from holotron.suites.screens.questions import FIND
from holotron.web.review import create_review
from tests.agent.scripted_server import scripted_server
from tests.env.site import Site
from tests.episodes.samples import png
from tests.eval.judged_episodes import played
from tests.eval.label_model import LabelModel
from tests.suites.miniwob_driver import needs_chromium

SIZE = (200, 100)
TRUTH = [
    ("button", "Save", (10, 10, 50, 30)),
    ("link", "Help", (60, 10, 90, 30)),
    ("text field", "Name", (10, 50, 120, 70)),
]


class Scripted:
    """A model in this process that answers as a scripted server would."""

    name = "scripted"

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, 0

    async def open(self) -> Scripted:
        return self

    async def say(self, new: list[Message], schema: Any = None) -> Reply:
        self.asked += 1
        messages = [{"role": each.role, "content": each.content(picture(each.image or b""))} for each in new]
        return Reply(self.answer({"messages": messages}), prompt_tokens=100)

    async def close(self) -> None: ...


def picture(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}


def pictures(folder: Path, count: int = 2) -> list[str]:
    """Screens that have nothing to tell them apart but their colour."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number}.png").write_bytes(png(number, *SIZE))
    return [hashlib.sha256(png(number, *SIZE)).hexdigest() for number in range(count)]


def run(out: Path, sources: list[str], model: Any, judge: Any = None, **settings: Any) -> dict[str, Any]:
    chosen = AnnotationSettings(out, **settings)
    run = Annotation(chosen, find_inputs(sources), (model, "scripted"), (judge, "judge") if judge else None)
    return asyncio.run(run.run())


def of(labels: list[Label], kind: str, level: str = "") -> list[Label]:
    return [label for label in labels if (label.kind, label.level) == (kind, level)]


def test_a_models_labels_are_accepted_where_its_points_agree(folder: Path) -> None:
    digests = pictures(folder / "shots")
    model = Scripted(LabelModel(dict.fromkeys(digests, (SIZE, TRUTH)), moved=0.4).answer)
    judge = Scripted(lambda request: "YES")
    report = run(folder / "out", [str(folder / "shots")], model, judge)
    labels = LabelFolder(folder / "out").read()
    elements = of(labels, "element")
    true = {name: box for _, name, box in TRUTH}
    for label in elements:
        right = label.box == pytest.approx(true[label.text], abs=0.2)
        assert (label.state == "accepted") == right, label
        assert [source.source for source in label.sources] == ["model", "point"]
    assert {label.state for label in elements} == {"accepted", "review"}
    assert all(label.reason == "1 of 1 points are outside the box" for label in elements if label.state == "review")
    assert [label.state for label in of(labels, "caption")] == ["accepted"] * 2
    for level in ("basic", "functional"):
        found = of(labels, "instruction", level)
        assert found
        assert all(label.state == "review" for label in found if label.box not in true.values())
    asked = model.asked
    again = run(folder / "out", [str(folder / "shots")], model, judge)
    assert (model.asked, again["labels"], again["models"]["scripted"]["asked_now"]) == (asked, report["labels"], 0)
    assert LabelFolder(folder / "out").read() == labels


def test_what_cannot_be_read_is_counted(folder: Path) -> None:
    pictures(folder / "shots", 1)
    (folder / "shots" / "broken.png").write_bytes(b"no picture")
    (folder / "shots" / "broken.gif").write_bytes(b"no film")
    report = run(folder / "out", [str(folder / "shots")], Scripted(lambda request: "I cannot help with that."))
    assert report["problems"]["refusal"] >= 1
    assert report["problems"]["not readable"] == 2
    assert "broken.gif" in report["examples"]["not readable"]
    assert not of(LabelFolder(folder / "out").read(), "element")


def test_episodes_get_thoughts_verdicts_and_hindsight(folder: Path) -> None:
    store = EpisodeStore(folder / "run")
    played(store, "a", "Buy a lamp.", None)

    def model(request: dict[str, Any]) -> str:
        return "Look at the results." if "did accomplish" in str(request) else "I see the results, so I click."

    def judge(request: dict[str, Any]) -> str:
        text = str(request)
        if "YES or NO" in text:
            return "YES"
        if "screenshot:" in text:
            return "Score: 4"
        if "Actions:" in text:
            return "Status: success" if "Look at the results" in text else "Status: failure"
        return "Key Points:\n1. It is done."

    kinds = ("thoughts", "verdicts", "hindsight")
    run(folder / "out", [str(folder / "run")], Scripted(model), Scripted(judge), kinds=kinds)
    labels = LabelFolder(folder / "out").read()
    assert [(label.text, label.state) for label in of(labels, "verdict")] == [("failure", "accepted")]
    assert [(label.text, label.state) for label in of(labels, "hindsight")] == [("Look at the results.", "accepted")]
    assert [label.step for label in of(labels, "thought")] == [0, 1, 2]
    assert write_accepted(folder / "out") == {"hindsight": 1}
    [info] = EpisodeStore(folder / "out" / "accepted").list_episodes()
    assert (info.task.text, info.outcome and info.outcome.success) == ("Look at the results.", True)
    assert "judge" in str(info.policy.extra["sources"])
    steps = list(EpisodeStore(folder / "out" / "accepted").steps(info.id))
    assert {step.thought for step in steps} == {"I see the results, so I click."}
    accepted = EpisodeStore(folder / "out" / "accepted")
    first = of(labels, "thought")[0]
    LabelFolder(folder / "out").decide(Decision(label=first.id, state="rejected"))
    assert not accepted.list_episodes()  # at once: nothing learns from it until it is written anew
    assert write_accepted(folder / "out") == {"hindsight": 1}
    assert [bool(step.thought == first.text) for step in accepted.steps(info.id)] == [False, True, True]
    [hindsight] = of(labels, "hindsight")
    with (folder / "out" / "review.jsonl").open("a") as file:  # as an older version left it
        file.write(json.dumps({"label": hindsight.id, "state": "rejected"}) + "\n")
    assert write_accepted(folder / "out") == {}
    assert not accepted.list_episodes()


def test_a_person_decides_and_what_was_decided_stays(folder: Path) -> None:
    digests = pictures(folder / "shots", 1)
    model = Scripted(LabelModel({digests[0]: (SIZE, TRUTH)}, astray=1.0).answer)
    sources = [str(folder / "shots")]
    run(folder / "out", sources, model, kinds=("elements", "instructions"))
    labels = LabelFolder(folder / "out")
    waiting = [label for label in labels.read() if label.state == "review" and label.kind == "instruction"]
    client = httpx.AsyncClient(transport=httpx.ASGITransport(create_review(labels)), base_url="http://127.0.0.1")

    async def review() -> list[httpx.Response]:
        async with client:
            page = await client.get("/")
            first = {"label": waiting[0].id, "state": "accepted", "text": "the big button", "box": [1, 2, 30, 40]}
            return [
                page,
                await client.post("/api/decisions", json=first),
                await client.post("/api/decisions", json={"label": waiting[1].id, "state": "rejected"}),
                await client.post("/api/decisions", json=first | {"box": [1, 2, 300, 40]}),
                await client.post("/api/decisions", json={"label": "none", "state": "accepted"}),
                await client.post("/api/decisions", content=b"{}", headers={"content-type": "text/plain"}),
                await client.get(f"/api/images/{digests[0]}.png"),
                await client.get("/api/images/..%2flabels.jsonl"),
                await client.get("/api/labels"),
                await client.get("/", headers={"host": "evil.example"}),
            ]

    answers = asyncio.run(review())
    assert [answer.status_code for answer in answers] == [200, 200, 200, 422, 422, 415, 200, 404, 200, 421]
    assert answers[8].json()["counts"]["rejected"] == 1
    run(folder / "out", sources, model, kinds=("elements", "instructions"))  # the labels are made anew
    found = {label.id: label for label in labels.read()}
    mended = found[waiting[0].id]
    assert (mended.state, mended.text, mended.box) == ("accepted", "the big button", (1, 2, 30, 40))
    assert mended.sources[-1].source == "person"
    assert found[waiting[1].id].state == "rejected"
    with pytest.raises(EpisodeError, match="there is no label"):
        labels.decide(Decision(label="none", state="accepted"))
    with (folder / "out" / "review.jsonl").open("ab") as file:
        file.write(b'{"label":')  # what a full disk left of a decision spoils no other
    labels.decide(Decision(label=waiting[0].id, state="rejected"))
    assert {label.id: label.state for label in labels.read()}[waiting[0].id] == "rejected"


def test_videos_give_the_frames_in_which_something_changed(tmp_path: Path) -> None:
    colours = ["red", "red", "blue", "blue", "red"]
    frames = [Image.new("RGB", (40, 30), colour) for colour in colours]
    frames[0].save(tmp_path / "demo.gif", save_all=True, append_images=frames[1:], duration=100)
    assert [item.name.rpartition(":")[2] for item in video_frames(tmp_path / "demo.gif", tmp_path / "frames")] == [
        "00000",
        "00001",
        "00002",
    ]
    done = CliRunner().invoke(app, ["data", "annotate", str(tmp_path / "demo.gif"), "--out", str(tmp_path / "out")])
    assert (done.exit_code, "only pages say themselves" in done.output) == (2, True)
    with pytest.raises(InputError, match="is no picture, video"):
        find_inputs([__file__])
    with pytest.raises(InputError, match="there is no file or folder nowhere"):
        find_inputs(["nowhere"])


def test_a_video_without_a_program_to_read_it_says_what_to_install(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "demo.mp4").write_bytes(b"not read")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(InputError, match=r"install ffmpeg, or the package av with: pip install 'holotron\[video\]'"):
        video_frames(tmp_path / "demo.mp4", tmp_path / "frames")


PAGE = """<title>Shop</title><style>body { margin: 20px } button, a { display: block; margin: 20px }</style>
<h1>Orders</h1><button>Save order</button><button>Cancel order</button><a href="/help">Read the help</a>"""


@needs_chromium
def test_a_pages_own_labels_are_exact_and_can_be_imported_again(folder: Path) -> None:
    with Site({"/": PAGE}) as site, scripted_server(points, policy_format={"format": "json"}) as server:
        command = ["data", "annotate", site.origin + "/", "--out", str(folder / "out"), "--size", "400x300"]
        command += ["--allow-private", "127.0.0.1", "--endpoint", server.url, "--labels", "elements,instructions"]
        done = CliRunner().invoke(app, [*command, "--json"])
        assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    labels = LabelFolder(folder / "out").read()
    named = {label.text: label for label in of(labels, "element")}
    assert {"Save order", "Cancel order", "Read the help", "Orders"} <= set(named)
    assert {label.sources[0].source for label in named.values()} == {"dom"}
    assert {label.state for label in of(labels, "instruction", "functional")} == {"review"}  # points that miss
    assert report["accepted_episodes"]["grounding"] == len(of(labels, "instruction", "basic")) + len(
        of(labels, "instruction", "spatial")
    )
    (folder / "x").mkdir()
    command = ["data", "export", str(folder / "out/accepted"), str(folder / "x/g.json"), "--as", "screenspot"]
    written = CliRunner().invoke(app, command)
    assert written.exit_code == 0, written.output
    found = import_dataset(ImportSettings("screenspot", folder / "x" / "g.json"), folder / "again")
    assert found.episodes == report["accepted_episodes"]["grounding"]


@needs_chromium
def test_the_page_of_a_stored_step_is_asked_while_it_looks_the_same(folder: Path) -> None:
    async def look(site: Site) -> tuple[Any, Any, Any]:
        async with PageSource((400, 300), allow_private=("127.0.0.1",)) as pages:
            shot, elements = await pages.look(site.origin + "/")
            again = await pages.look_again(site.origin + "/", shot, (400, 300))
            return elements, again, await pages.look_again(site.origin + "/", png(1, 400, 300), (400, 300))

    with Site({"/": PAGE}) as site:
        elements, again, other = asyncio.run(look(site))
    assert again == elements
    assert other is None


def points(request: dict[str, Any]) -> str:
    text = str(request["messages"][-1]["content"])
    if "For each of these elements" in text:
        return json.dumps({"instructions": {str(number): f"Do thing {number}" for number in range(1, 5)}})
    assert FIND not in text
    return json.dumps({"x": 999, "y": 999})
