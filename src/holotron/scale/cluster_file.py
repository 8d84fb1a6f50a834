"""A cluster in one small file, and what Ray needs to start it: on this machine, over SSH, or on Kubernetes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from holotron.train.toml_file import build

PORT = 6379
NAME = "[a-z]([a-z0-9-]{0,48}[a-z0-9])?"  # what names a RayCluster, and services after it


class ClusterFileError(ValueError):
    """A cluster file says something that cannot be."""


@dataclass(frozen=True)
class MachineKind:
    """Machines that are alike. addresses: of those that SSH reaches; on Kubernetes, `count` of them are asked for."""

    cpus: int
    gpus: int = 0
    memory_gib: int = 16
    count: int = 1
    addresses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.cpus < 1 or self.gpus < 0 or self.memory_gib < 1 or self.count < 1:
            raise ValueError("cpus, memory_gib and count must be 1 or more, gpus 0 or more")


@dataclass(frozen=True)
class ClusterFile:
    """head: where commands and the server run. engines, browsers: the other machines. Without: this machine.

    install: what every machine runs first. image: for Kubernetes, with Ray and Holotron inside.
    """

    name: str = "holotron"
    port: int = PORT
    head: MachineKind | None = None
    engines: MachineKind | None = None
    browsers: MachineKind | None = None
    ssh_user: str = ""
    ssh_key: str = ""
    install: str = "pip install 'holotron[ray,eval]'"
    image: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(NAME, self.name):
            raise ValueError(f"name is {self.name!r}; a name is of small letters, digits and hyphens, 50 at most")
        if not 1 <= self.port <= 65535:
            raise ValueError(f"port is {self.port}; it must be from 1 to 65535")
        if self.over_ssh and not (self.ssh_user and self.head is not None and len(self.head.addresses) == 1):
            raise ValueError("machines with addresses need ssh_user, and the head one address of its own")

    @property
    def groups(self) -> dict[str, MachineKind]:
        """The machines besides the head."""
        found = {"engines": self.engines, "browsers": self.browsers}
        return {name: kind for name, kind in found.items() if kind is not None}

    @property
    def over_ssh(self) -> bool:
        return any(kind.addresses for kind in self.groups.values())


def read_cluster_file(path: Path) -> ClusterFile:
    """ClusterFileError names what is wrong in it."""
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ClusterFileError(f"{path} cannot be read: {error}") from error
    return build(ClusterFile, {} if value is None else value, str(path), ClusterFileError)


def start_words(cluster: ClusterFile) -> list[str]:
    """The command that has Ray on this machine until it is interrupted."""
    words = ["ray", "start", "--head", "--block", f"--port={cluster.port}"]
    words += ["--disable-usage-stats", "--include-dashboard=false"]
    head = cluster.head
    return words if head is None else [*words, f"--num-cpus={head.cpus}", f"--num-gpus={head.gpus}"]


def ray_up_file(cluster: ClusterFile) -> str:
    """For `ray up`: machines that are there and that SSH reaches."""
    workers = [address for kind in cluster.groups.values() for address in kind.addresses]
    stop, port = "ray stop", cluster.port
    value: dict[str, Any] = {
        "cluster_name": cluster.name,
        "provider": {
            "type": "local",
            "head_ip": cluster.head.addresses[0] if cluster.head and cluster.head.addresses else "HEAD",
            "worker_ips": workers,
        },
        "auth": {"ssh_user": cluster.ssh_user} | ({"ssh_private_key": cluster.ssh_key} if cluster.ssh_key else {}),
        "min_workers": len(workers),
        "max_workers": len(workers),
        "setup_commands": [cluster.install],
        "head_start_ray_commands": [
            stop,
            # Ray's second autoscaler counts the head among the workers of such a cluster, and would start one too few.
            f"RAY_enable_autoscaler_v2=0 ray start --head --port={port} --disable-usage-stats "
            "--autoscaling-config=~/ray_bootstrap_config.yaml",
        ],
        "worker_start_ray_commands": [stop, f"ray start --address=$RAY_HEAD_IP:{port}"],
    }
    return str(yaml.safe_dump(value, sort_keys=False))


def kuberay_file(cluster: ClusterFile) -> str:
    """A RayCluster for the KubeRay operator."""
    spec: dict[str, Any] = {
        # The head runs no browsers and no engines: it is what all others need.
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0"},
            "template": _pod(cluster, "head", cluster.head or MachineKind(cpus=2)),
        },
        "workerGroupSpecs": [
            {
                "groupName": name,
                "replicas": kind.count,
                "minReplicas": 0,
                "maxReplicas": kind.count,
                "rayStartParams": {},
                "template": _pod(cluster, name, kind),
            }
            for name, kind in cluster.groups.items()
        ],
    }
    named = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": cluster.name}}
    return str(yaml.safe_dump({**named, "spec": spec}, sort_keys=False))


def _pod(cluster: ClusterFile, name: str, kind: MachineKind) -> dict[str, Any]:
    amounts: dict[str, Any] = {"cpu": kind.cpus, "memory": f"{kind.memory_gib}Gi"}
    if kind.gpus:
        amounts["nvidia.com/gpu"] = kind.gpus
    image = cluster.image or "IMAGE"
    # Chromium's pages share memory through this folder, and the usual 64 MiB end them.
    shared = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    container = {
        "name": f"ray-{name}",
        "image": image,
        "resources": {"limits": amounts, "requests": amounts},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    return {"spec": {"containers": [container], "volumes": [shared]}}
