"""The viewer without a browser: the list, one episode, images, and what must not be answered."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from holotron.actions.action import Click
from holotron.cli import view
from holotron.episodes.record import Episode, Outcome
from holotron.episodes.store import EpisodeStore
from holotron.web import catalog as catalog_module
from holotron.web.app import create_app
from holotron.web.catalog import Catalog
from holotron.web.page import SCRIPTS, joined_scripts
from holotron.web.report import write_report
from tests.web import samples
from tests.web.browser import serving

OWN = "http://127.0.0.1:8765"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    return samples.make_store(tmp_path_factory.mktemp("store"))


@pytest.fixture
def client(store: EpisodeStore) -> Iterator[TestClient]:
    with TestClient(create_app(Catalog(store)), base_url=OWN) as client:
        yield client


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the disk at every call, and ask for locks every time."""
    for name in ("REFRESH_SECONDS", "ASK_RUNNING_SECONDS", "ASK_UNFINISHED_SECONDS"):
        monkeypatch.setattr(catalog_module, name, 0.0)


def news(catalog: Catalog, cursor: str = "") -> dict:
    return json.loads(catalog.changes(cursor))


def an_episode(store: EpisodeStore, name: str) -> str:
    return next(row.id for row in Catalog(store).rows() if row.name == name)


# ---- the list -----------------------------------------------------------------------------------------------------


def test_rows_say_how_each_episode_ended(store):
    rows = Catalog(store).rows()
    outcomes = {row.outcome for row in rows}
    assert outcomes == {"success", "failed", "infrastructure", "unfinished", "damaged"}
    row = next(row for row in rows if row.name == "sign-in")
    assert (row.outcome, row.reward, row.steps, row.weights, row.seed) == ("success", 1.0, 5, "42", "1")


@pytest.mark.usefixtures("eager")
def test_only_what_changed_is_told(tmp_path):
    store = EpisodeStore(tmp_path, sync="never")
    samples.write_login(store, 1000.0)
    catalog = Catalog(store)
    first = news(catalog)
    assert first["head"]["whole"]
    assert len(first["rows"]) == 1
    assert news(catalog, first["head"]["cursor"])["rows"] == []

    writer = samples.begin(store, "Wait for me.", "slow", time.time())
    begun = news(catalog, first["head"]["cursor"])
    assert [(row["name"], row["outcome"], row["steps"]) for row in begun["rows"]] == [("slow", "running", 0)]
    for index in range(2):
        writer.add_step(samples.a_step(index, Click(x=1, y=1), "on"), samples.board(False))
    grown = news(catalog, begun["head"]["cursor"])
    assert [(row["outcome"], row["steps"]) for row in grown["rows"]] == [("running", 2)]
    writer.close()
    left = news(catalog, grown["head"]["cursor"])
    assert [row["outcome"] for row in left["rows"]] == ["unfinished"]
    writer = samples.begin(store, "Wait for me, too.", "slower", time.time())
    writer.add_step(samples.a_step(0, Click(x=1, y=1), "on"), samples.board(False))
    writer.finish(Outcome(reason="done"))
    done = news(catalog, left["head"]["cursor"])
    assert [(row["name"], row["outcome"], row["steps"]) for row in done["rows"]] == [("slower", "unscored", 1)]

    (tmp_path / "episodes" / writer.info.id).rename(tmp_path / "elsewhere")
    gone = news(catalog, done["head"]["cursor"])
    assert (gone["rows"], gone["removed"]) == ([], [writer.info.id])
    assert news(Catalog(store), gone["head"]["cursor"])["head"]["whole"], "another server's cursor says nothing"


@pytest.mark.usefixtures("eager")
def test_an_attempt_that_is_begun_again_takes_the_place_of_the_first(tmp_path):
    store = EpisodeStore(tmp_path, sync="never")
    for number in range(2):
        with samples.begin(store, "Again.", "again", 1000.0 + number) as writer:
            for index in range(3 - 2 * number):
                writer.add_step(samples.a_step(index, None, ""))
        if number == 0:
            catalog = Catalog(store)
            cursor = news(catalog)["head"]["cursor"]
    (row,) = news(catalog, cursor)["rows"]
    assert (row["steps"], row["started"]) == (1, 1001.0)


def test_damage_is_told_without_naming_the_folder(client, store):
    rows = client.get("/api/episodes").json()["rows"]
    (damaged,) = [row for row in rows if row["outcome"] == "damaged"]
    assert "not valid JSON" in damaged["detail"]
    assert str(store.folder) not in damaged["detail"]
    answer = client.get(f"/api/episodes/{damaged['id']}")
    assert answer.json()["damage"] == damaged["detail"]


# ---- one episode --------------------------------------------------------------------------------------------------


def test_an_episode_with_its_actions_in_words(client, store):
    found = client.get(f"/api/episodes/{an_episode(store, 'sign-in')}").json()
    assert found["views"][0]["sentence"] == 'Click "User name" (500, 419)'
    assert found["views"][0]["action"]["button"] == "left"
    assert found["damage"] is None
    assert len(found["steps"]) == 5
    rest = client.get(f"/api/episodes/{found['episode']['id']}?first=3").json()
    assert rest["steps"] == found["steps"][3:]


def test_the_download_is_the_episode(client, store):
    episode_id = an_episode(store, "sign-in")
    answer = client.get(f"/api/episodes/{episode_id}/download")
    assert answer.headers["content-disposition"] == f'attachment; filename="{episode_id}.json"'
    assert Episode.model_validate_json(answer.content) == store.read(episode_id)


def test_steps_before_damage_are_shown(tmp_path):
    store = EpisodeStore(tmp_path, sync="never")
    info = samples.write_drag(store, 1000.0)
    path = tmp_path / "episodes" / info.id / "steps.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + b"{}\n" + lines[3])
    client = TestClient(create_app(Catalog(store)), base_url=OWN)
    found = client.get(f"/api/episodes/{info.id}").json()
    assert len(found["steps"]) == 2
    assert "steps.jsonl" in found["damage"]
    assert str(tmp_path) not in found["damage"]
    assert client.get(f"/api/episodes/{info.id}/download").status_code == 200


# ---- what must not be answered ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8765", 200),
        ("localhost:1234", 200),
        ("127.0.0.1", 200),
        ("evil.example:8765", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("", 421),
    ],
)
def test_only_the_own_name_is_answered_to(client, host, status):
    for path in ("/", "/api/episodes", "/static/app.js"):
        assert client.get(path, headers={"host": host}).status_code == status


def test_images_only_by_their_digest(client, store):
    image = next(store.images.folder.glob("*/*.png"))
    answer = client.get(f"/api/images/{image.name}")
    assert (answer.content, answer.headers["content-type"]) == (image.read_bytes(), "image/png")
    (store.folder / "images" / "secret.png").write_bytes(image.read_bytes())
    for name in (
        "secret.png",
        "%2e%2e%2fsecret.png",
        "..%2f..%2fetc%2fpasswd",
        f"{image.stem.upper()}.png",
        f"{image.stem}%00.png",
        f"{image.stem}%0a.png",
        f"{image.stem}.svg",
        image.stem,
        "0" * 64 + ".png",
    ):
        assert client.get(f"/api/images/{name}").status_code == 404, name


@pytest.mark.parametrize(
    "path",
    [
        "/api/episodes/..",
        "/api/episodes/%2e%2e",
        "/api/episodes/..%2f..%2fetc",
        "/api/episodes/.hidden",
        "/api/episodes/no-such",
        "/api/episodes/no-such/download",
        "/static/index.html",
        "/static/..%2fpage.py",
        "/static/%2e%2e/page.py",
        "/static/page.py",
        "/docs",
        "/openapi.json",
    ],
)
def test_there_is_no_way_out_of_the_store(client, path):
    assert client.get(path).status_code == 404


def test_paths_that_clients_would_tidy_up_lead_nowhere(store):
    with serving(store) as home:
        port = httpx.URL(home).port
        for path in (
            "/api/images/../../episodes",
            "/static/../../../etc/passwd",
            "//etc/passwd",
            "/api/episodes/../..",
        ):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                assert connection.makefile("rb").readline().startswith(b"HTTP/1.1 404"), path


def test_nothing_can_be_changed(client):
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/api/episodes").status_code == 405


def test_every_answer_carries_a_policy(client, store):
    image = next(store.images.folder.glob("??/*.png")).name
    for path in ("/", "/static/app.js", "/api/episodes", f"/api/images/{image}"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "require-trusted-types-for 'script'" in client.get("/").headers["content-security-policy"]


def test_the_scripts_never_make_markup_of_texts():
    static = Path(view.__file__).parents[1] / "web" / "static"
    script = joined_scripts()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc"):
        assert word not in script
        for name in ("samples.js", "review.js", "cluster.js"):  # pages of their own
            assert word not in (static / name).read_text()
    names = re.findall(r"^(?:async )?(?:const|let|function|class) (\w+)", script, re.MULTILINE)
    assert len(names) == len(set(names)), "joined, the modules share their names"
    assert {*SCRIPTS, "samples.js", "review.js", "cluster.js"} == {path.name for path in static.glob("*.js")}


def test_the_page_can_be_mounted_anywhere(store):
    app = FastAPI()
    app.mount("/episodes", create_app(Catalog(store)))
    client = TestClient(app, base_url=OWN)
    assert 'src="static/app.js"' in client.get("/episodes/").text
    assert client.get("/episodes/static/app.js").status_code == 200
    assert len(client.get("/episodes/api/episodes").json()["rows"]) == 13


# ---- reports ------------------------------------------------------------------------------------------------------


def test_a_report_replaces_a_report_and_nothing_else(store, tmp_path):
    out = tmp_path / "report"
    first = write_report(store, out)
    assert first.episodes == 13
    (out / "images" / ("0" * 64 + ".png")).touch()
    second = write_report(store, out)
    assert second.page == out / "index.html"
    assert len(list((out / "images").iterdir())) == second.images == first.images
    episode_id = an_episode(store, "sign-in")
    text = (out / "episodes" / f"{episode_id}.json").read_text()
    assert Episode.model_validate_json(text) == store.read(episode_id)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").touch()
    with pytest.raises(ValueError, match="holds something else"):
        write_report(store, other)
