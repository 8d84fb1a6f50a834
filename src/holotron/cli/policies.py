"""Which model acts, as every command that runs agents lets one choose it."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holotron.cli.errors import Misuse, failure, misuse
from holotron.cli.process_registry import interruptible
from holotron.env.browser.chromium import require_chromium

if TYPE_CHECKING:
    from holotron.agent.chat import ChatModel, ChatOptions
    from holotron.agent.cost import PriceTable
    from holotron.agent.policy_format import PolicyFormat
    from holotron.episodes.record import PolicyInfo
    from holotron.suites.play import Player
    from holotron.train.rl.rollout import OpenLive

BUNDLED = "holotron-nano"  # as in episodes/run.py, which is heavy to import

ModelOption = Annotated[
    str | None, typer.Option("--model", help=f"Folder, hub id or preset, run in this process; without one, {BUNDLED}.")
]
RandomOption = Annotated[bool, typer.Option("--random", help="Random weights in the shape of the preset.")]
EndpointOption = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        help="An OpenAI-compatible server, such as http://127.0.0.1:8000/v1; or, with --name MODEL, openai or "
        "anthropic: that provider's computer tool.",
    ),
]
NameOption = Annotated[str | None, typer.Option("--name", help="The model's name at the endpoint.")]
TemperatureOption = Annotated[float, typer.Option(min=0.0, help="0 takes the most likely token.")]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="How it is asked: nano, json, holo1, holo1.5, holo2, holotron, ui-tars, qwen-vl, qwen2.5-vl; default: as "
        "its checkpoint says, or its family is.",
    ),
]
MaxTokensOption = Annotated[int, typer.Option(min=1, help="Most tokens of one answer.")]
BareOption = Annotated[bool, typer.Option("--bare", help="Ask for the action alone, without note and thought.")]
AllowPrivateOption = Annotated[
    list[str] | None,
    typer.Option("--allow-private", metavar="HOST", help="A name that may lead to this machine or a private network."),
]
PricesOption = Annotated[
    Path | None,
    typer.Option("--prices", help="A TOML table of prices by model: the cost is told.", exists=True, dir_okay=False),
]
RootOption = Annotated[
    Path | None, typer.Option(file_okay=False, help="Of webapps: the folder of WebArena-Infinity, or of its apps.")
]


def use_libraries(folder: Path | None) -> Path | None:
    """Worker processes find it in their environment."""
    if folder is not None:
        os.environ["HOLOTRON_LIBRARIES"] = str(folder.absolute())
    return folder


LibrariesOption = Annotated[
    Path | None,
    typer.Option(
        callback=use_libraries,
        file_okay=False,
        help="Folder of fetched UI libraries (default: HOLOTRON_LIBRARIES, or ~/.cache/holotron/libraries).",
    ),
]
AppsOption = Annotated[str | None, typer.Option(help="Of webapps: some of the apps, with commas between.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda (default: the GPU if there is one).")]
WorkersOption = Annotated[int, typer.Option(min=1, max=256, help="Processes for browsers, which all ask one model.")]
BrowsersOption = Annotated[int, typer.Option(min=1, max=64, help="Chromium processes of each worker.")]
RunFolderOption = Annotated[
    Path | None, typer.Option(file_okay=False, help="Folder of the run; a second one goes on in it.")
]
JudgeNameOption = Annotated[str | None, typer.Option(help="The judge's name there.")]
EnginesOption = Annotated[
    int,
    typer.Option(
        min=1,
        max=64,
        help="Copies of a small model that workers are shared out to, each in a process of its own: for a GPU that "
        "waits for one process's Python.",
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="A Ray cluster, such as 10.0.0.1:6379 or auto: workers become hosts of browsers on its machines.",
    ),
]


@dataclass(frozen=True)
class Chosen:
    """A model as the command line names it."""

    model: str | None
    random: bool
    endpoint: str | None
    name: str | None
    format: str | None = None

    def __post_init__(self) -> None:
        if self.model is not None and self.endpoint is not None:
            raise Misuse("--model acts in this process and --endpoint elsewhere; say one of them")
        if self.endpoint in ("openai", "anthropic") and (self.name is None or self.format is not None):
            raise Misuse(f"--endpoint {self.endpoint} wants --name MODEL, and has its own --format")
        if self.random and self.model is None:
            raise Misuse("--random goes with --model")
        if self.format is not None:
            from holotron.agent.policy_format import find_format

            with misuse(ValueError):
                find_format(self.format)

    @property
    def label(self) -> str:
        return self.name or self.model or self.endpoint or BUNDLED

    def info(self, policy_format: PolicyFormat, prices: PriceTable | None = None, **more: Any) -> PolicyInfo:
        """What an episode keeps about the policy that played it; with prices, those of a million of its tokens."""
        from holotron.episodes.record import PolicyInfo

        extra: dict[str, Any] = {"format": policy_format.spec}
        if prices is not None and (price := prices.find(self.label)) is not None:
            extra |= {f"price_{name}": value for name, value in vars(price).items() if value is not None}
            extra["currency"] = prices.currency
        return PolicyInfo(model=self.label, extra=extra, **more)

    @property
    def local(self) -> str | None:
        """The model that runs in this process: the bundled one where nothing else is said."""
        return None if self.endpoint is not None else self.model or BUNDLED

    def check(self) -> None:
        """Misuse where the model that is to run in this process is not there."""
        if self.local is None or self.random:
            return
        from holotron.model.errors import ModelError
        from holotron.model.loading import find_checkpoint

        with misuse(ModelError):
            find_checkpoint(self.local)

    @cached_property
    def stated_format(self) -> PolicyFormat | None:
        """How the model's checkpoint says that it is asked, here or at the endpoint (ModelUnavailable if away)."""
        from holotron.agent.open_model import resolve_format

        return resolve_format(None if self.random else self.local, self.endpoint, self.name)

    def policy_format(self, bare: bool = False, kinds: tuple[str, ...] | None = None) -> PolicyFormat:
        """How it is asked: as the command line says, else its checkpoint, else as any chat model."""
        from holotron.agent.policy_format import BareJsonFormat, JsonFormat, find_format

        found = find_format(self.format) if self.format else self.stated_format or JsonFormat()
        if bare and isinstance(found, JsonFormat):
            found = BareJsonFormat(found.kinds, found.size, found.keep_images)
        found = found.on(date.today().isoformat())
        return found.with_kinds(kinds) if kinds else found

    def introduction(self) -> str:
        """What a user should know who named no model."""
        if self.model is not None or self.endpoint is not None:
            return ""
        return (
            f"{BUNDLED} acts: a small policy that sees pixels alone and solves four fifths of MiniWoB++'s tasks; "
            "expect it to fail on all but the simplest pages. For real sites name a large one, with "
            "--endpoint URL (an OpenAI-compatible server, such as holotron serve) or --model FOLDER."
        )


def price_table(path: Path | None) -> PriceTable | None:
    """The prices that a command was given."""
    if path is None:
        return None
    from holotron.agent.cost import PriceError, read_prices

    with misuse(PriceError):
        return read_prices(path)


def player(ray: str | None, chosen: Chosen | None) -> Player:
    """What plays tasks: processes of this machine, or hosts on the machines of a Ray cluster."""
    if ray is None:
        from holotron.suites.play import play_tasks

        require_chromium()  # known before a model is loaded
        return play_tasks
    if chosen is not None and chosen.endpoint in (None, "openai", "anthropic"):
        raise Misuse("--ray plays on other machines, which ask the model over HTTP: say --endpoint URL")
    from holotron.scale.ray_hosts import on_ray

    return on_ray(ray, None if chosen is None else chosen.endpoint)


def without(command: Callable[..., None], *options: str) -> Callable[..., None]:
    """A command that several suites share, less the options that are of others."""
    signature = inspect.signature(command, eval_str=True)  # as typer reads it
    kept = [value for name, value in signature.parameters.items() if name not in options]
    command.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return command


@contextmanager
def live_play(ray: str | None) -> Iterator[OpenLive | None]:
    """What plays in online RL: hosts on the machines of a Ray cluster; None for browsers of this machine."""
    if ray is None:
        yield None
        return
    from holotron.scale.live_hosts import live_on_ray
    from holotron.scale.ray_hosts import connected

    with connected(ray):  # here already: a cluster that is not there is known before a model is loaded
        yield live_on_ray(ray)


@contextmanager
def agent_failures() -> Iterator[None]:
    """Inside, a page that cannot be opened, a browser that is missing or a model that is away is told in a line."""
    from holotron.agent.chat import ModelUnavailable
    from holotron.agent.endpoint import EndpointRefused
    from holotron.env.errors import EnvError

    with failure(EnvError, ModelUnavailable, EndpointRefused):
        yield


@asynccontextmanager
async def opened(
    chosen: Chosen, style: ChatOptions, device: str | None = None, sessions: int = 1, engines: int = 1
) -> AsyncIterator[ChatModel]:
    """The model, ready to talk; given back at the end. sessions: that will talk at once. engines: copies of it."""
    from holotron.agent.open_model import open_endpoint, warmed_model

    if chosen.endpoint is not None:
        _ = chosen.stated_format  # asks the server, so that one which is away is known before anything is begun
        async with open_endpoint(chosen.endpoint, chosen.name, style) as endpoint:
            yield endpoint
        return
    with ExitStack() as stack:
        with interruptible():
            policy: ChatModel
            if chosen.random or chosen.local is None:
                from holotron.agent.in_process import EngineModel
                from holotron.engine.build import EngineOptions, build_engine
                from holotron.server.loading import load_texts

                options = EngineOptions(model=chosen.model or "", random=True, device=device)
                texts = load_texts(options)
                policy = EngineModel(stack.enter_context(build_engine(options)), texts.prompts, style)
            elif engines > 1:
                from holotron.agent.model_processes import ModelProcesses

                copy = partial(warmed_model, chosen.local, style, device, -(-sessions // engines))
                policy = stack.enter_context(ModelProcesses(engines, chosen.local, copy))
            else:
                policy = stack.enter_context(warmed_model(chosen.local, style, device, sessions))
        yield policy
