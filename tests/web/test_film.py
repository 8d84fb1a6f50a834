"""Episodes as moving pictures, and what they cost."""

from __future__ import annotations

import importlib.util
import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from holotron.cli.main import app
from tests.web import samples


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return samples.make_store(tmp_path_factory.mktemp("film") / "store", more=0)


def holo(*words: object):
    return CliRunner().invoke(app, list(map(str, words)))


def test_a_gif_shows_every_step(store, tmp_path):
    info = next(info for info in store.list_episodes() if info.task.name == "sign-in")
    done = holo("film", store.folder, info.id, "--out", tmp_path / "x.gif", "--width", 640, "--seconds", 0.5)
    assert done.exit_code == 0, done.stderr
    with Image.open(tmp_path / "x.gif") as film:
        assert film.n_frames == info.step_count
        assert film.width == 640
        assert film.height > 640 * 800 / 1280  # the caption below the screen
        assert film.info["duration"] == 500
    assert list(tmp_path.iterdir()) == [tmp_path / "x.gif"]


@pytest.mark.skipif(importlib.util.find_spec("av") is None, reason="needs the extra video")
def test_an_mp4_shows_every_step(store, tmp_path):
    import av

    info = next(info for info in store.list_episodes() if info.task.name == "sign-in")
    done = holo("film", store.folder, info.id, "--out", tmp_path / "x.mp4", "--width", 320, "--seconds", 0.5)
    assert done.exit_code == 0, done.stderr
    with av.open(str(tmp_path / "x.mp4")) as film:
        assert sum(1 for _ in film.decode(video=0)) == 5 * (info.step_count + 1)


def test_what_cannot_be_filmed_is_said(store, tmp_path):
    for words, says in (
        ([store.folder, "--out", tmp_path / "x.avi"], "must end in .gif or .mp4"),
        ([store.folder, "nothing", "--out", tmp_path / "x.gif"], "no episode 'nothing'"),
        ([tmp_path, "--out", tmp_path / "x.gif"], "there are no episodes"),
    ):
        done = holo("film", *words)
        assert done.exit_code == 2
        assert says in done.stderr


def test_costs_by_model(store, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text('["*"]\ninput = 1\noutput = 2\n')
    done = holo("cost", store.folder, "--prices", prices, "--json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["currency"] == "USD"
    for row in report["models"]:
        assert row["cost"] == pytest.approx((row["prompt"] + 2 * row["output"]) / 1e6, abs=1e-6)
    assert sum(row["episodes"] for row in report["models"]) == len(store.list_episodes())
    assert "cached" in holo("cost", store.folder).stdout
