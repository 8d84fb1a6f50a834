"""Which model acts, as every command that runs agents lets one choose it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from holotron.cli.errors import Misuse, failure

if TYPE_CHECKING:
    from holotron.agent.chat import ChatModel, Style

ModelOption = Annotated[str | None, typer.Option("--model", help="Folder, hub id or preset, run in this process.")]
RandomOption = Annotated[bool, typer.Option("--random", help="Random weights in the shape of the preset.")]
EndpointOption = Annotated[
    str | None, typer.Option("--endpoint", help="An OpenAI-compatible server, such as http://127.0.0.1:8000/v1.")
]
NameOption = Annotated[str | None, typer.Option("--name", help="The model's name at the endpoint.")]
TemperatureOption = Annotated[float, typer.Option(min=0.0, help="0 takes the most likely token.")]
MaxTokensOption = Annotated[int, typer.Option(min=1, help="Most tokens of one answer.")]
KEY_VARIABLES = ("HOLOTRON_API_KEY", "OPENAI_API_KEY")


@dataclass(frozen=True)
class Chosen:
    """A model as the command line names it."""

    model: str | None
    random: bool
    endpoint: str | None
    name: str | None

    def __post_init__(self) -> None:
        if (self.model is None) == (self.endpoint is None):
            raise Misuse(
                "say which model acts: --model FOLDER (in this process) or --endpoint URL (a server); no weights ship "
                "with this version yet"
            )
        if self.random and self.model is None:
            raise Misuse("--random goes with --model")

    @property
    def label(self) -> str:
        return self.name or self.model or self.endpoint or "unknown"


@contextmanager
def agent_failures() -> Iterator[None]:
    """Inside, a page that cannot be opened, a browser that is missing or a model that is away is told in a line."""
    from holotron.agent.chat import ModelUnavailable
    from holotron.agent.endpoint import EndpointRefused
    from holotron.env.errors import EnvError

    with failure(EnvError, ModelUnavailable, EndpointRefused):
        yield


@asynccontextmanager
async def opened(chosen: Chosen, style: Style) -> AsyncIterator[ChatModel]:
    """The model, ready to talk; given back at the end."""
    if chosen.endpoint is not None:
        from holotron.agent.endpoint import EndpointModel

        key = next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
        endpoint = EndpointModel(chosen.endpoint, chosen.name, key, style)
        try:
            yield endpoint
        finally:
            await endpoint.aclose()
        return
    from holotron.agent.in_process import EngineModel
    from holotron.server.loading import build_engine, load_texts
    from holotron.server.messages import EngineOptions

    options = EngineOptions(model=chosen.model or "", random=chosen.random)
    texts = load_texts(options)
    with build_engine(options) as engine:
        yield EngineModel(engine, texts.prompts, style)
