"""The episode viewer beside the API: at /view/, for this machine only."""

import pytest

from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo, Outcome, PolicyInfo
from holotron.episodes.store import EpisodeStore
from holotron.server.settings import ServerSettings

from .live import serving


def test_episodes_are_shown_beside_the_api(checkpoint, tmp_path):
    store = EpisodeStore(tmp_path)
    with store.begin(
        Task(text="Look", url="http://x"), PolicyInfo(model="m"), EnvironmentInfo(name="browser")
    ) as writer:
        writer.finish(Outcome(reason="answered"))
    with serving(checkpoint, episodes=str(tmp_path)) as live, live.client() as http:
        assert "<html" in http.get("/view/").text
        assert "Look" in http.get("/view/api/episodes").text
        assert http.get("/view/", headers={"Host": "evil.example"}).status_code == 421
        assert http.get("/v1/models", headers={"Host": "evil.example"}).status_code == 421
        assert http.get("/view/static/../../../etc/passwd").status_code == 404


def test_never_with_keys_or_beyond_this_machine():
    for wrong in ({"api_keys": ("k",)}, {"host": "0.0.0.0"}):
        with pytest.raises(ValueError, match="only on loopback"):
            ServerSettings(episodes="runs", **wrong)
