"""A cluster's file, what is written for Ray from it, and errors that say what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from holotron.cli.main import app
from holotron.scale.cluster_file import ClusterFile, ClusterFileError, read_cluster_file, start_words
from holotron.scale.ray_hosts import ClusterError, connected
from holotron.scale.status import server_status

TEN = """
name: agents
ssh_user: ubuntu
image: registry.example/holotron:1
head: {cpus: 4, addresses: [10.0.0.1]}
engines: {cpus: 8, gpus: 1, memory_gib: 64, count: 3, addresses: [10.0.0.2, 10.0.0.3, 10.0.0.4]}
browsers: {cpus: 16, count: 2, addresses: [10.0.0.5, 10.0.0.6]}
"""


def test_files_for_ray_and_kubernetes(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(TEN)
    done = CliRunner().invoke(app, ["up", str(tmp_path / "cluster.yaml"), "--write", str(tmp_path / "deploy")])
    assert done.exit_code == 0, done.output
    assert "kubectl apply -f" in done.output
    ray_up = yaml.safe_load((tmp_path / "deploy" / "ray-up.yaml").read_text())
    assert ray_up["provider"]["head_ip"] == "10.0.0.1"
    assert ray_up["provider"]["worker_ips"] == [f"10.0.0.{number}" for number in range(2, 7)]
    assert ray_up["auth"] == {"ssh_user": "ubuntu"}
    kube = yaml.safe_load((tmp_path / "deploy" / "kuberay.yaml").read_text())
    assert (kube["kind"], kube["metadata"]) == ("RayCluster", {"name": "agents"})
    engines, browsers = kube["spec"]["workerGroupSpecs"]
    assert (engines["groupName"], engines["replicas"], browsers["replicas"]) == ("engines", 3, 2)
    [container] = engines["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/holotron:1"
    assert container["resources"]["limits"] == {"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cpu: 4", "unknown key 'cpu'; known are browsers"),
        ("head: {cpus: 0}", "cpus, memory_gib and count must be 1 or more"),
        ("port: many", "must be of type int"),
        ("engines: {cpus: 8, addresses: [10.0.0.2]}", "need ssh_user"),
        ("- a list", "must be a table"),
        ("head: {", "cannot be read"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "cluster.yaml").write_text(text)
    with pytest.raises(ClusterFileError, match=problem):
        read_cluster_file(tmp_path / "cluster.yaml")


def test_one_machine_is_whole_unless_told() -> None:
    assert not [word for word in start_words(ClusterFile()) if word.startswith("--num")]


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["eval", "miniwob", "--endpoint", "http://127.0.0.1:1", "--ray", "10.0.0.1:6379"]
    for arguments in (words, ["up"], ["status", "--ray", "auto"]):
        error = CliRunner().invoke(app, arguments, standalone_mode=False).exception
        assert "holotron[ray]" in str(error), arguments


@pytest.mark.parametrize("model", [[], ["--endpoint", "openai", "--name", "some"]])
def test_a_model_that_other_machines_cannot_ask_is_refused(model: list[str]) -> None:
    error = CliRunner().invoke(app, ["eval", "miniwob", "--ray", "auto", *model], standalone_mode=False).exception
    assert "say --endpoint URL" in str(error)


def test_where_nothing_listens_it_is_said_at_once() -> None:
    pytest.importorskip("ray")
    with pytest.raises(ClusterError, match=r"no Ray cluster at 127.0.0.1:1 .*holotron up"), connected("127.0.0.1:1"):
        pass
    with pytest.raises(ClusterError, match="cannot be asked"):
        server_status("http://127.0.0.1:1/v1", None)
