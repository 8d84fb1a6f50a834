"""`holotron up` and `holotron status`: a cluster, begun and looked at."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from holotron.cli.errors import Misuse, misuse
from holotron.cli.output import JsonOption, console, examples, plain_table, print_json
from holotron.cli.process_registry import registered
from holotron.cli.view import OpenOption, PortOption, listening

UP_EXAMPLES = examples(
    "holotron up                          # Ray on this machine, until Ctrl-C",
    "holotron up cluster.yaml             # machines over SSH, if the file names addresses",
    "holotron up cluster.yaml --write deploy   # ray-up.yaml and kuberay.yaml, and nothing is started",
)
STATUS_EXAMPLES = examples(
    "holotron status --ray auto",
    "holotron status --ray 10.0.0.1:6379 --endpoint http://10.0.0.1:8000/v1 --json",
    "holotron status --ray auto --endpoint http://127.0.0.1:8000/v1 --page   # follows the cluster, until Ctrl-C",
)


def up(
    file: Annotated[Path | None, typer.Argument(help="YAML; without one, a cluster of this machine.")] = None,
    write: Annotated[
        Path | None, typer.Option(file_okay=False, help="Write the files for ray up and KubeRay there; start nothing.")
    ] = None,
) -> None:
    """Start a Ray cluster: here, or on the machines that a file names."""
    from holotron.scale.cluster_file import (
        ClusterFile,
        ClusterFileError,
        kuberay_file,
        ray_up_file,
        read_cluster_file,
        start_words,
    )
    from holotron.scale.ray_extra import import_ray

    with misuse(ClusterFileError):
        cluster = ClusterFile() if file is None else read_cluster_file(file)
    if write is not None:
        write.mkdir(parents=True, exist_ok=True)
        for name, text in (("ray-up.yaml", ray_up_file(cluster)), ("kuberay.yaml", kuberay_file(cluster))):
            (write / name).write_text(text, encoding="utf-8")
        typer.echo(f"{write}/ray-up.yaml: ray up {write}/ray-up.yaml")
        typer.echo(f"{write}/kuberay.yaml: kubectl apply -f {write}/kuberay.yaml")
        return
    import_ray()
    if cluster.groups and not cluster.over_ssh:
        raise Misuse(f"{file} has machines without addresses: --write FOLDER writes the files for Kubernetes")
    words = start_words(cluster)
    if cluster.over_ssh:
        assert file is not None
        path = file.with_suffix(".ray-up.yaml")
        path.write_text(ray_up_file(cluster), encoding="utf-8")
        words = ["ray", "up", "--yes", str(path)]
    program = shutil.which(words[0]) or str(Path(sys.executable).with_name(words[0]))
    with registered("up"):
        typer.echo(f"{' '.join(words)}", err=True)
        if (code := subprocess.run([program, *words[1:]]).returncode) != 0:
            raise OSError(f"{' '.join(words[:2])} ended with exit code {code}")


def status(
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="A Ray cluster: its machines and hosts.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="A server: its replicas and sessions.")] = None,
    admin_key: Annotated[str | None, typer.Option(envvar="HOLOTRON_ADMIN_KEY", help="Of that server.")] = None,
    json: JsonOption = False,
    page: Annotated[bool, typer.Option("--page", help="Serve a page here that follows the cluster.")] = False,
    port: PortOption = None,
    open_: OpenOption = True,
) -> None:
    """Show machines, hosts of browsers, replicas, and sessions that were moved, rebuilt and lost."""
    if ray is None and endpoint is None:
        raise Misuse("say what to look at: --ray ADDRESS, --endpoint URL, or both")
    if page:
        _serve_page(ray, endpoint, admin_key, port, open_)
        return
    from holotron.scale.status import ray_status, server_status

    found: dict[str, Any] = {} if ray is None else ray_status(ray)
    if endpoint is not None:
        found |= server_status(endpoint, admin_key)
    if json:
        print_json(found)
        return
    shown = {
        "machines": ("address", "alive", "cpus", "gpus"),
        "hosts": ("name", "state", "machine", "pid", "suite", "playing", "finished", "lost", "steps"),
        "replicas": ("name", "state", "host", "pid", "sessions", "turns", "restarts"),
    }
    out = console()
    for part, columns in shown.items():
        if part in found:
            table = plain_table(*columns)
            for row in found[part]:
                table.add_row(*(_cell(row.get(column, "")) for column in columns))
            out.print(f"{len(found[part])} {part}", table if found[part] else "", sep="\n")
    if "replicas" in found:
        out.print(
            ", ".join(
                f"{found[name]} {name.replace('_', ' ')}" for name in ("open_sessions", "moved", "rebuilt", "lost")
            )
        )


def _cell(value: Any) -> str:
    """Of a list, such as the tasks that a host plays, how many there are."""
    return str(len(value) if isinstance(value, list | tuple) else value)


def _serve_page(ray: str | None, endpoint: str | None, admin_key: str | None, port: int | None, open_: bool) -> None:
    from holotron.scale.cluster_page import serve_cluster
    from holotron.scale.ray_hosts import connected
    from holotron.scale.watch import ClusterWatch, look_at

    with nullcontext() if ray is None else connected(ray):
        serve_cluster(ClusterWatch(partial(look_at, ray, endpoint, admin_key)), listening(port, open_))
