"""How a cluster is getting on: its machines, hosts of browsers, and the replicas behind a server."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

import httpx

from holotron.agent.proxies import client_options, told_proxy
from holotron.scale.browser_host import HostStatus
from holotron.scale.ray_hosts import NAMESPACE, PREFIX, ClusterError, connected

ANSWER_SECONDS = 5.0


def ray_status(address: str) -> dict[str, Any]:
    """machines and hosts of a Ray cluster; ClusterError where there is none."""
    with connected(address) as ray:
        machines = [
            {
                "address": node["NodeManagerAddress"],
                "alive": node["Alive"],
                "cpus": node["Resources"].get("CPU", 0.0),
                "gpus": node["Resources"].get("GPU", 0.0),
            }
            for node in ray.nodes()
        ]
        asked = {}
        for each in ray.util.list_named_actors(all_namespaces=True):
            if each["namespace"] == NAMESPACE and each["name"].startswith(PREFIX):
                with suppress(ValueError):  # it has ended since
                    asked[each["name"]] = ray.get_actor(each["name"], NAMESPACE).status.remote()
        questions = list(asked.values())
        answered = ray.wait(questions, num_returns=len(questions), timeout=ANSWER_SECONDS)[0] if questions else []
        hosts = [
            {"name": name.removeprefix(PREFIX)} | _told(ray, question, question in answered)
            for name, question in sorted(asked.items())
        ]
        return {"machines": machines, "hosts": hosts}


def _told(ray: Any, question: Any, answered: bool) -> dict[str, Any]:
    if not answered:
        return {"state": "waits for a machine, or is being started"}
    try:
        status: HostStatus = ray.get(question)
    except ray.exceptions.RayError:
        return {"state": "is being started again"}
    return {"state": "up"} | asdict(status)


def server_status(endpoint: str, admin_key: str | None) -> dict[str, Any]:
    """What a server says of its replicas: each of them, open_sessions, moved, rebuilt and lost."""
    root = endpoint.rstrip("/").removesuffix("/v1")
    headers = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
    try:
        options = client_options(root)
        answer = httpx.get(f"{root}/admin/replicas", headers=headers, timeout=ANSWER_SECONDS, **options)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ClusterError(f"{root} cannot be asked: {error}{told_proxy(root)}") from error
    if answer.status_code in (401, 403):
        raise ClusterError(f"{root} wants its admin key: --admin-key, or HOLOTRON_ADMIN_KEY in the environment")
    if answer.status_code == 404:
        raise ClusterError(f"{root} has no replicas; holotron serve MODEL --replicas N has them")
    if answer.status_code != 200:
        raise ClusterError(f"{root} answers {answer.status_code}: {answer.text[:200]}")
    told: dict[str, Any] = answer.json()
    return {key: value for key, value in told.items() if key != "ok"}
