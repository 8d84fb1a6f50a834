"""Runs the application until it is told to stop."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from dataclasses import replace
from functools import partial

from holotron.agent.policy_format import find_format
from holotron.server.app import ReplicaSet, create_app
from holotron.server.http_server import HttpServer
from holotron.server.loading import load_texts
from holotron.server.log_lines import write_logs
from holotron.server.memory import reuse_freed_memory
from holotron.server.settings import ServerSettings

log = logging.getLogger(__name__)

BACKLOG = 2048
SWITCH_SECONDS = 0.001  # that a thread which writes prompts may keep the event loop waiting


def serve(settings: ServerSettings, replicas: ReplicaSet | None = None) -> None:
    """Serve until Ctrl-C or SIGTERM; turns under way then have `grace_seconds`. OSError if it cannot start."""
    listener = listen(settings.host, settings.port)  # before anything that takes long
    texts = load_texts(settings.engine)
    if settings.policy_format is not None:
        texts = replace(texts, policy_format=find_format(settings.policy_format))
    write_logs(settings.log_format, logging.INFO)
    for name in ("httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if settings.log_format == "text":  # people want to know what they wait for, and not how a server is put together
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        log.info("loading %s; Ctrl-C stops", settings.model_name)
    failures: list[str] = []

    def give_up(reason: str) -> None:
        failures.append(reason)
        server.should_exit = True

    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{listener.getsockname()[1]}"
    ready = partial(log.info, "serving %s on %s", settings.model_name, address)
    app = create_app(settings, texts, give_up, ready, replicas)
    server = HttpServer(app, settings)
    reuse_freed_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()  # what is loaded by now stays: looking through it again and again would stop the event loop
    # Once it has shut down, uvicorn raises the signal that told it to anew; being told to stop is no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server.run(sockets=[listener])
    if failures or not server.started:
        raise OSError(failures[0] if failures else "the server could not be started; the lines above say why")


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on. OSError says which address cannot be had."""
    # asyncio sends small answers without delay only where the protocol is named.
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
    return listener
