"""A cluster's file, what is written for Ray from it, and errors that say what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from holotron.cli.main import app
from holotron.scale.cluster_file import (
    ClusterFile,
    ClusterFileError,
    kuberay_file,
    ray_up_file,
    read_cluster_file,
    start_words,
)
from holotron.scale.ray_hosts import ClusterError, connected
from holotron.scale.status import server_status
from tests.train.rl.samples import write_run

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


def test_ray_itself_accepts_the_file(tmp_path: Path) -> None:
    """By the checks that `ray up` begins with: every key is known, and machines are found as its on-premise kind."""
    util = pytest.importorskip("ray.autoscaler._private.util")
    (tmp_path / "cluster.yaml").write_text(TEN + "ssh_key: ~/.ssh/agents\n")
    text = ray_up_file(read_cluster_file(tmp_path / "cluster.yaml"))
    config = util.prepare_config(yaml.safe_load(text))
    util.validate_config(config)
    assert config["auth"] == {"ssh_user": "ubuntu", "ssh_private_key": "~/.ssh/agents"}
    [machines] = config["available_node_types"].values()
    assert (machines["min_workers"], machines["max_workers"], config["max_workers"]) == (5, 5, 5)
    assert config["head_start_ray_commands"][-1].startswith("RAY_enable_autoscaler_v2=0 ray start --head --port=6379 ")
    with pytest.raises(Exception, match="Additional properties"):  # so that the check above says something
        util.validate_config(util.prepare_config(yaml.safe_load(text) | {"min_worker": 5}))


# Of KubeRay's types (ray-operator/apis/ray/v1/raycluster_types.go): what each may have, with * what it must.
CLUSTER = "headGroupSpec* workerGroupSpecs rayVersion enableInTreeAutoscaling autoscalerOptions suspend"
HEAD = "serviceType headService enableIngress rayStartParams* template*"
GROUP = "groupName* replicas minReplicas* maxReplicas* numOfHosts rayStartParams* template* scaleStrategy"


def check_fields(value: dict[str, Any], fields: str) -> None:
    assert value.keys() <= set(fields.replace("*", "").split())
    assert value.keys() >= {field[:-1] for field in fields.split() if field.endswith("*")}


def test_kuberay_knows_the_fields(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(TEN)
    kube = yaml.safe_load(kuberay_file(read_cluster_file(tmp_path / "cluster.yaml")))
    check_fields(kube["spec"], CLUSTER)
    check_fields(kube["spec"]["headGroupSpec"], HEAD)
    for group in kube["spec"]["workerGroupSpecs"]:
        check_fields(group, GROUP)
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (kube["spec"]["headGroupSpec"], *kube["spec"]["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        mounts = {each["name"] for each in group["template"]["spec"]["containers"][0]["volumeMounts"]}
        assert mounts == {each["name"] for each in group["template"]["spec"]["volumes"]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: Our_Agents", "a name is of small letters"),
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


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["eval", "miniwob", "--endpoint", "http://127.0.0.1:1", "--ray", "10.0.0.1:6379"]
    recipe = str(write_run(tmp_path, steps=1))
    train = ["train", "grpo", recipe, "--out", str(tmp_path / "run"), "--ray", "auto"]
    page = ["status", "--ray", "auto", "--page", "--no-open", "--port", "0"]
    for arguments in (words, ["up"], ["status", "--ray", "auto"], page, train):
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
