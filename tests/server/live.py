"""A real server in a thread, its engine in a process of its own, over a tiny model that has eyes."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import uvicorn

from holotron.model.byte_tokenizer import byte_library
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.config import AttentionConfig, MambaConfig, MlpConfig, ModelConfig, VisionConfig
from holotron.model.initialize import random_model
from holotron.server.app import create_app
from holotron.server.messages import EngineOptions
from holotron.server.settings import ServerSettings
from holotron.server.state import State

TINY = ModelConfig(
    name="tiny",
    pattern="M-M*-",
    hidden_size=48,
    vocab_size=288,
    mamba=MambaConfig(heads=4, head_dim=16, state_size=16, groups=2, chunk_size=16),
    attention=AttentionConfig(heads=4, kv_heads=2, head_dim=16),
    mlp=MlpConfig(96),
    vision=VisionConfig(
        width=32,
        depth=2,
        heads=2,
        mlp_size=64,
        max_image_size=256,
        prefix_tokens=2,
        projector_size=48,
        mode="dynamic",
        min_patches=4,
        max_patches=256,
        image_token_id=5,
        image_start_token_id=6,
        image_end_token_id=7,
    ),
)


def write_checkpoint(folder: Path, seed: int = 0) -> Path:
    """A checkpoint as it would be downloaded, with a tokenizer of bytes."""
    model = random_model(TINY, seed=seed)
    save_checkpoint(model, folder)
    byte_library(TINY).save(str(folder / "tokenizer.json"))
    return folder


@dataclass
class Live:
    """A running server. `state` is its inside, for what cannot be seen from outside."""

    url: str
    state: State
    loop: asyncio.AbstractEventLoop

    def client(self, key: str | None = None, **options: object) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False, **options)


def options(folder: Path, **changes: object) -> EngineOptions:
    values = {"memory_gib": 0.05, "host_gib": 0.05, "max_context": 4096, "tokens_per_session": 512, "threads": 1}
    return EngineOptions(model=str(folder), device="cpu", **(values | changes))


@contextmanager
def serving(folder: Path, engine: dict[str, object] | None = None, **settings: object) -> Iterator[Live]:
    wanted = ServerSettings(engine=options(folder, **(engine or {})), served_name="tiny", **settings)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    wanted = replace(wanted, port=port)
    app = create_app(wanted)
    config = uvicorn.Config(app, port=port, log_config=None, access_log=False, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.02)
        assert thread.is_alive(), "the server did not start"
    try:
        yield Live(f"http://127.0.0.1:{port}", app.state.server, loops[0])
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"
