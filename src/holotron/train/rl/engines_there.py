"""Engines in other processes: servers of ours, which are given the weights after each update and must show that they
have them. One that is away plays no part until it has them again."""

from __future__ import annotations

import base64
import math
import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from time import monotonic
from typing import Any

import httpx
import torch
from safetensors.torch import save_file
from torch import Tensor

from holotron.agent.chat import ChatOptions
from holotron.agent.endpoint import AGAIN, find_key
from holotron.agent.engine_pool import EnginePool, PooledEngine
from holotron.agent.proxies import client_options
from holotron.engine.weight_group import TransferFailed
from holotron.engine.weights import bit_checksum, by_tensor
from holotron.model.parameters import parameter_type
from holotron.train.learner import Learner
from holotron.train.lora import save_adapter
from holotron.train.meter import TrainingError
from holotron.train.optimizer import trained
from holotron.train.parallel import whole
from holotron.train.rl.broadcast import Broadcast
from holotron.train.rl.config import GrpoRecipe
from holotron.train.rl.weight_sync import POLICY, changes_of, shares_base
from holotron.train.sequences import Sequence

FOLDER = "engines"  # below the run's
HELD, VERSION = "/admin/checksum", "/get_weight_version"
PAUSE = 1.0  # seconds between two looks at those that are away
QUICK, SLOW = 10.0, 600.0  # seconds for what a server knows, and for reading large weights
Json = dict[str, Any]


class _Away(Exception):
    """A server does not answer, or has no engine at the moment."""


class EnginesThere:
    """The servers that a recipe names, asked as EngineHere is. Of several ranks each has its share of them.

    With LoRA only the adapter goes there, and the weights that a server began with must be the trainer's; else all
    weights go, whatever it began with, in files or over a group.
    """

    def __init__(self, recipe: GrpoRecipe, learner: Learner, style: ChatOptions, out: Path) -> None:
        config, ranks = recipe.rollout, learner.ranks
        urls = config.engines[ranks.rank :: ranks.size]
        if not urls:
            raise TrainingError(f"{ranks.size} processes train, and each needs an engine of its own: name more")
        key, run = os.environ.get("HOLOTRON_ADMIN_KEY") or find_key(), ranks.gather(token_hex(4))[0]
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        style = replace(style, keep_images=None)
        self.model = EnginePool(urls, run, key, style, config.on_update, recipe.groups.size, config.seconds + 60)
        self._engines, self._patience = self.model.engines, config.engine_seconds
        self._ranks, self._folder = ranks, (out / FOLDER).resolve()
        self._adapter = POLICY if shares_base(learner) else None
        self._broadcast = Broadcast(config.address, learner.device) if config.weights == "broadcast" else None
        self._dtype: torch.dtype  # in which servers hold weights, once one has told
        self._base = self._problem = ""  # the checksum of weights that stay as they are; of the last that was away
        self._next_look, self._away_since = 0.0, math.inf  # all of them

    def send(self, learner: Learner, version: int) -> str:
        """Have all servers hold the weights of now; their checksum. TrainingError where one holds something else."""
        if not self.model.name:
            self._meet(learner)
        self._version = f"{self.model.run}/{version}"
        self._sent = self._folder / (f"{self.model.run}-{version}" + ("" if self._adapter else ".safetensors"))
        self._checksum = self._write(learner)
        self._ranks.gather(None)  # it is there for all
        with ThreadPoolExecutor(len(self._engines)) as pool:
            list(pool.map(self._give, self._engines))
        self._ranks.gather(None)
        for old in self._folder.glob("*") if self._ranks.first else ():
            if old != self._sent:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        return self._checksum

    def tend(self) -> None:
        """Have servers that were away hold the weights of now. TrainingError once all were away for too long."""
        if (now := monotonic()) < self._next_look:
            return
        for engine in self._engines:
            if not engine.ready:
                self._give(engine)
        self._next_look = now + PAUSE + min(60.0, 6 * (monotonic() - now))  # one that hangs must not hold all up
        all_away = not any(engine.ready for engine in self._engines)
        self._away_since = min(now, self._away_since) if all_away else math.inf
        if now - self._away_since > self._patience:
            raise TrainingError(f"no engine answers any more; the same command goes on: {self._problem}")

    def score(self, sequence: Sequence) -> list[float] | None:
        """The log-probability of each token after those before it; None where no server answers."""
        urls = ["data:image/png;base64," + base64.b64encode(picture.png).decode() for picture in sequence.pictures]
        body = {"model": self.model.name, "prompt": sequence.token_ids.tolist(), "images": urls or None}
        body |= {"max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 0}
        for engine in (each for each in self._engines if each.ready):
            with suppress(_Away, TrainingError):  # one that was started again refuses what it does not know yet
                [choice] = self._ask(engine, "POST", "/v1/completions", body)["choices"]
                return [value or 0.0 for value in choice["logprobs"]["token_logprobs"][:-1]]
        return None

    def warm_up(self, sessions: int) -> None: ...
    def sleep(self) -> None: ...  # its memory is not the trainer's
    def wake(self) -> None: ...

    def _meet(self, learner: Learner) -> None:
        """Hear from the first that answers what they all are."""
        for engine in self._engines:
            with suppress(_Away):
                [base, *_] = self._ask(engine, "GET", "/v1/models", None, QUICK)["data"]
                held = self._ask(engine, "GET", HELD)
                self._dtype = getattr(torch, held["dtype"])
                self.model.name = self._adapter or base["id"]
                break
        else:
            raise TrainingError(f"no engine answers; `holotron serve` starts one: {self._problem}")
        if self._broadcast and held["device"] != "cuda":
            self._broadcast.device = torch.device("cpu")
        if self._adapter:
            self._base = bit_checksum(self._typed(learner.weights(merge=False)))

    def _write(self, learner: Learner) -> str:
        """The weights of now as servers will hold them, for them to be given; their checksum."""
        if self._adapter:
            changes = {name: whole(change).detach() for name, change in trained(learner.model).items()}
            if self._ranks.first:
                save_adapter(learner.shape(), changes, learner.recipe.lora, self._sent)
            return bit_checksum((name, change.to(self._dtype)) for name, change in by_tensor(changes_of(learner)))
        gathered, first = self._typed(learner.weights(averaged=False)), self._ranks.first
        if (way := self._broadcast) is not None:  # each rank has all for its servers
            way.weights = {}  # there may be no room for both
            way.weights.update((name, weight.to("cpu", copy=True)) for name, weight in gathered)
            return bit_checksum(way.weights.items())
        weights = {name: weight.to("cpu") for name, weight in gathered if first}
        if first:
            self._folder.mkdir(exist_ok=True)
            save_file(weights, self._sent)
        return self._ranks.gather(bit_checksum(weights.items()))[0]

    def _typed(self, weights: Iterable[tuple[str, Tensor]]) -> Iterable[tuple[str, Tensor]]:
        return ((name, weight.to(parameter_type(name, self._dtype))) for name, weight in weights)

    def _give(self, engine: PooledEngine) -> None:
        """Have a server hold what was sent last, unless it has it; one that does not answer is given it later."""
        adapter, version = self._adapter, ""
        try:
            if not engine.ready:
                version = self._ask(engine, "GET", VERSION, None, QUICK)["weight_version"]
                if adapter and (base := self._ask(engine, "GET", HELD)["checksum"]) != self._base:
                    raise TrainingError(f"{engine.url} has another model ({base}) than this run's ({self._base})")
            if self._broadcast:  # also where the version is right: an engine that is started again has lost them
                self._broadcast.give(engine.url, self._version, partial(self._ask, engine))
                self.model.updates += 1
            elif version != self._version:
                method, path = ("PUT", f"/admin/adapters/{adapter}") if adapter else ("POST", "/admin/update_weights")
                self._ask(engine, method, path, {"path": str(self._sent), "version": self._version})
                self.model.updates += 1
            held = self._ask(engine, "GET", f"{HELD}?adapter={adapter or ''}")["checksum"]
        except (_Away, TransferFailed, OSError) as error:
            self._problem = str(error) or self._problem
            self.model.lose(engine)
            return
        if held != self._checksum:
            raise TrainingError(f"{engine.url} holds other weights ({held}) than {self._version} ({self._checksum})")
        engine.ready = True

    def _ask(self, engine: PooledEngine, method: str, path: str, body: Json | None = None, most: float = SLOW) -> Json:
        limits = (3.0, most, most, most)  # to connect, read and write
        how: Json = {"headers": self._headers, "timeout": limits, **client_options(engine.url)}
        try:
            response = httpx.request(method, engine.url + path, json=body, **how)
        except httpx.HTTPError as error:
            self._problem = f"{engine.url}: {str(error) or type(error).__name__}"
            raise _Away from error
        if response.status_code in AGAIN:
            self._problem = f"{engine.url}: {response.text[:300]}"
            raise _Away
        if response.status_code >= 400:
            raise TrainingError(f"{engine.url}{path} is refused: {response.status_code} {response.text[:300]}")
        answer: Json = response.json()
        return answer
