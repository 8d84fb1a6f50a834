"""`holotron serve`: the engine over HTTP."""

from __future__ import annotations

import os
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated

import typer

from holotron.cli.errors import Misuse, choose, misuse
from holotron.cli.output import examples
from holotron.cli.policies import FormatOption
from holotron.engine.options import EngineOptions
from holotron.server.log_lines import FORMATS
from holotron.server.settings import LOGPROBS_MODES, LOOPBACK, ServerSettings

EXAMPLES = examples(
    "holotron serve ./my-checkpoint --port 8000",
    "holotron serve holotron-nano --random   # no weights needed: it talks nonsense, quickly",
    "holotron serve Hcompany/Holotron-12B --adapter shop=runs/shop/adapter   # clients ask for the model shop",
    "holotron serve Hcompany/Holotron-12B --host 0.0.0.0 --api-key-file keys.txt --state fp16 --kv fp8 --weights fp8",
    "holotron serve Hcompany/Holotron-12B --replicas 8 --ray auto   # an engine on each of eight GPUs of a Ray cluster",
    "curl http://127.0.0.1:8000/v1/models",
)
STATE_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
KV_TYPES = {"same": None, "fp8": "fp8"}
WEIGHT_TYPES = {"same": None, "bf16": "bfloat16", "fp8": "fp8"}


def serve(
    model: Annotated[str, typer.Argument(help="Folder, hub id or preset.")] = "holotron-nano",
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback want an API key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    random: Annotated[bool, typer.Option("--random", help="Random weights in the shape of a preset.")] = False,
    served_name: Annotated[str | None, typer.Option(help="The name clients use for the model.")] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FOLDER of a LoRA adapter, served as model NAME; may be given often."),
    ] = None,
    api_key: Annotated[list[str] | None, typer.Option(help="A key clients must send; may be given often.")] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A file with a key on each line.")
    ] = None,
    admin_key: Annotated[str | None, typer.Option(envvar="HOLOTRON_ADMIN_KEY", help="Opens /admin.")] = None,
    trainer: Annotated[
        list[str] | None,
        typer.Option(help="Address or network (10.0.0.0/8) of trainers that send no key: they may do what /admin may."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cuda, cuda:1, cpu (default: the GPU if there is one)")] = None,
    weights: Annotated[
        str, typer.Option(help="Type of the decoder's layers: same (as stored), bf16, fp8 (rounded when read)")
    ] = "same",
    state: Annotated[str, typer.Option(help=f"Type of the SSM states: {', '.join(STATE_TYPES)}")] = "fp32",
    kv: Annotated[str, typer.Option(help="Type of keys and values: same (as the weights), fp8")] = "same",
    memory: Annotated[float | None, typer.Option(help="GiB for sessions (default: what is free, less 10)")] = None,
    host_memory: Annotated[
        float, typer.Option(help="GiB of host memory for sessions that do not fit")
    ] = EngineOptions.host_gib,
    disk: Annotated[float, typer.Option(help="GiB of disk for those that fit nowhere else")] = EngineOptions.disk_gib,
    disk_folder: Annotated[Path | None, typer.Option(help="Where on disk.")] = None,
    max_context: Annotated[
        int, typer.Option(min=16, help="Most tokens a session can have.")
    ] = EngineOptions.max_context,
    tokens_per_session: Annotated[
        int, typer.Option(min=16, help="Tokens of a usual session: divides the memory between states and KV.")
    ] = EngineOptions.tokens_per_session,
    checkpoints: Annotated[
        int, typer.Option(min=0, help="States kept per session for going back, and one more while there is room.")
    ] = EngineOptions.checkpoints,
    target_token_latency: Annotated[
        float | None,
        typer.Option(min=0.001, help="Seconds between two tokens: prompts are cut into pieces that leave it so."),
    ] = None,
    target_step_latency: Annotated[
        float | None,
        typer.Option(min=0.001, help="Seconds for a usual turn: prompts wait for each other, long ones longer."),
    ] = None,
    max_queue: Annotated[int, typer.Option(min=1, help="Turns under way at once; more are told to wait.")] = 1024,
    max_per_key: Annotated[int, typer.Option(min=1, help="The same for one key.")] = 512,
    max_body: Annotated[int, typer.Option(min=1, help="MiB that a request may have.")] = 64,
    timeout: Annotated[float, typer.Option(help="Seconds that a turn may take.")] = 600.0,
    session_ttl: Annotated[float, typer.Option(help="Seconds that an unused session is kept.")] = 3600.0,
    grace: Annotated[float, typer.Option(help="Seconds that running turns have to finish at the end.")] = 30.0,
    image_host: Annotated[
        list[str] | None, typer.Option(help="Fetch image URLs from this host (*.example.com); default: none")
    ] = None,
    episodes: Annotated[
        Path | None, typer.Option(help="Show this folder of episodes at /view/ (on loopback, without keys).")
    ] = None,
    format_: FormatOption = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A name that requests may be for besides loopback's; * is any.")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(help="Lines of the log, of both processes: json, text; default: text on a terminal")
    ] = None,
    cors_origin: Annotated[list[str] | None, typer.Option(help="Let pages of this origin call the API.")] = None,
    logprobs_mode: Annotated[
        str, typer.Option(help=f"Log-probabilities of completions and chats: {', '.join(LOGPROBS_MODES)} (of the draw)")
    ] = "raw_logprobs",
    replicas: Annotated[
        int, typer.Option(min=1, max=1024, help="Engines behind this server, a GPU each; sessions move between them.")
    ] = 1,
    ray: Annotated[
        str | None, typer.Option(help="Have them on this Ray cluster: HOST:PORT, or auto for the one that runs here.")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="A folder in which sessions outlive this server: started again, it has them.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse unknown fields of requests (default: told in a header, ignored).")
    ] = False,
) -> None:
    """Serve a model to OpenAI clients, with sessions that fork, roll back and never compute a token twice."""
    choose("--state", state, STATE_TYPES)
    choose("--kv", kv, KV_TYPES)
    choose("--weights", weights, WEIGHT_TYPES)
    choose("--logprobs-mode", logprobs_mode, LOGPROBS_MODES)
    log_format = log_format or ("text" if sys.stderr.isatty() else "json")
    choose("--log-format", log_format, FORMATS)
    keys = _keys(api_key, api_key_file)
    if not keys and host not in (*LOOPBACK, "::1"):
        raise Misuse(f"--host {host} opens the server to the network; give --api-key or --api-key-file, too")
    from holotron.server.run import serve as run

    if episodes is not None and (keys or host not in LOOPBACK):
        raise Misuse("--episodes shows episodes without a key: only on loopback, and without --api-key")
    if format_ is not None:
        from holotron.agent.policy_format import find_format

        with misuse(ValueError):
            find_format(format_)
    engine = EngineOptions(
        model=model,
        random=random,
        device=device,
        state_dtype=STATE_TYPES[state],
        kv_dtype=KV_TYPES[kv],
        dtype=WEIGHT_TYPES[weights],
        memory_gib=memory,
        host_gib=host_memory,
        disk_gib=disk,
        disk_folder=str(disk_folder) if disk_folder else None,
        max_context=max_context,
        tokens_per_session=tokens_per_session,
        checkpoints=checkpoints,
        target_token_latency=target_token_latency,
        target_step_latency=target_step_latency,
        adapters=_adapters(adapter or [], served_name or model),
    )
    settings = ServerSettings(
        engine=engine,
        served_name=served_name,
        host=host,
        port=port,
        api_keys=keys,
        admin_key=admin_key,
        trainers=_networks(trainer or []),
        max_queue=max_queue,
        max_per_key=max_per_key,
        max_body_bytes=max_body * 2**20,
        request_seconds=timeout,
        session_seconds=session_ttl,
        grace_seconds=grace,
        image_hosts=tuple(image_host or ()),
        cors_origins=tuple(cors_origin or ()),
        allowed_hosts=tuple(allowed_host or ()),
        log_format=log_format,
        strict=strict,
        logprobs_mode=logprobs_mode,
        episodes=str(episodes) if episodes else None,
        policy_format=format_,
    )
    if replicas == 1 and ray is None and journal is None:
        run(settings)
        return
    from holotron.scale.serve import replica_set

    with replica_set(settings, replicas, ray, journal) as several:
        run(settings, several)


def _networks(given: list[str]) -> tuple[str, ...]:
    for network in given:
        with misuse(ValueError):
            ip_network(network)
    return tuple(given)


def _adapters(given: list[str], model: str) -> tuple[tuple[str, str], ...]:
    adapters: dict[str, str] = {}
    for text in given:
        name, _, folder = text.partition("=")
        if not name or not Path(folder).is_dir():
            raise Misuse(f"--adapter {text}: write NAME=FOLDER, with a folder that PEFT has written")
        if name in adapters or name == model:
            raise Misuse(f"--adapter {text}: {name} is taken; each adapter needs a name of its own")
        adapters[name] = folder
    return tuple(adapters.items())


def _keys(given: list[str] | None, file: Path | None) -> tuple[str, ...]:
    keys = list(given or [])
    if file is not None:
        keys += [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not keys:
            raise Misuse(f"{file} holds no key")
    if from_environment := os.environ.get("HOLOTRON_API_KEY"):
        keys.append(from_environment)
    return tuple(keys)
