"""What a run needs to go on as if it had never stopped, written while it goes on.

A state is a folder of torch.distributed.checkpoint, to which each rank writes its own part and from which each reads
its part, whatever number of them there was before; a small file beside it names the folder, and appears when all of it
is there. What does not learn is not in it: it is read again from where the run started.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor, nn

from holotron.episodes.files import sync_path, whole_file
from holotron.train.loader import Cursor
from holotron.train.meter import TrainingError
from holotron.train.optimizer import Average, trained
from holotron.train.parallel import Ranks

NAME, FOLDER = "state.json", "state"
MODEL, AVERAGE, OPTIMIZER = "model.", "average.", "optimizer."
Optimizers = Sequence[torch.optim.Optimizer]
# Without other ranks, as it is told each time.
warnings.filterwarnings("ignore", "torch.distributed is disabled")


class StateWriter:
    """Writes a run's states, one at a time, in a thread. All ranks call it behind the same steps."""

    def __init__(self, folder: Path, ranks: Ranks = Ranks()) -> None:
        self._folder, self._ranks = folder, ranks
        # A group of its own: the thread's messages must not come between those of the steps.
        self._group = dist.new_group(backend="gloo") if ranks.size > 1 else None
        self._thread = ThreadPoolExecutor(1, "state")
        self._pending: Future[None] | None = None
        self._step = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """What was begun is finished first."""
        self._thread.shutdown()

    def begin(
        self,
        step: int,
        model: nn.Module,
        optimizers: Optimizers,
        average: Average,
        cursors: dict[int, Cursor],
        beside: Callable[[], None] = lambda: None,
    ) -> None:
        """Copy the state to the host's memory, and begin to write it; one that is being written is waited for.

        beside: writes what the first rank keeps besides, in the thread, before the state counts.
        """
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        self.end()
        # Pinned memory is several times faster to copy to. One for each state: PyTorch 2.11's stages only once.
        stager = DefaultStager(StagingOptions(next(model.parameters()).is_cuda, False, False, False))
        about = {
            "step": step,
            "folder": self._ranks.gather(f"step-{step}-{uuid4().hex[:8]}")[0],
            "cursors": {
                stream: asdict(cursor) for stream, cursor in sorted(_furthest(self._ranks.gather(cursors)).items())
            },
        }
        staged: Any = stager.stage(_tensors(model, optimizers, average))
        self._step = step
        self._pending = self._thread.submit(self._write, staged, about, beside)

    @property
    def broken(self) -> bool:
        """Whether what was begun has failed; `end` says how."""
        return self._pending is not None and self._pending.done() and self._pending.exception() is not None

    def end(self) -> None:
        """Wait until the last state is whole; TrainingError if it could not be written, and the one before it stays."""
        if self._pending is None:
            return
        error, self._pending = self._pending.exception(), None
        if reasons := [reason for reason in self._ranks.gather("" if error is None else _reason(error)) if reason]:
            last, free = read_about(self._folder), shutil.disk_usage(self._folder).free / 2**30
            kept = f"the last whole one, of step {last['step']}, is as it was" if last else "there is none before it"
            raise TrainingError(
                f"the state of step {self._step} could not be written to {self._folder}, where {free:.1f} GiB are free "
                f"({reasons[0]}); {kept}. Make room and run the same again"
            ) from error

    def _write(self, tensors: dict[str, Tensor], about: dict[str, Any], beside: Callable[[], None]) -> None:
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        place = self._folder / FOLDER / about["folder"]
        place.mkdir(parents=True, exist_ok=True)
        try:
            alone = self._group is None
            save(tensors, storage_writer=FileSystemWriter(place), process_group=self._group, no_dist=alone)
            if self._ranks.first:
                beside()
                sync_path(place)
                with whole_file(self._folder / NAME) as partial:
                    partial.write_text(json.dumps(about), encoding="utf-8")
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        if self._ranks.first:
            for other in place.parent.iterdir():  # those before it, and what a run left that was killed
                if other != place:
                    shutil.rmtree(other, ignore_errors=True)


def check_room(folder: Path, model: nn.Module, ranks: Ranks) -> None:
    """TrainingError where not even the weights have room: said before the steps whose state could not be kept."""
    free, least = shutil.disk_usage(folder).free, sum(parameter.nbytes for parameter in trained(model).values())
    if any(ranks.gather(free < least)):
        raise TrainingError(
            f"{free / 2**20:,.0f} MiB are free at {folder}; a state needs more than the {least / 2**20:,.0f} MiB of "
            "the weights that are trained; make room, or name another folder"
        )


def load_state(
    folder: Path, model: nn.Module, optimizers: Optimizers, average: Average, ranks: Ranks = Ranks()
) -> tuple[int, dict[int, Cursor]]:
    """The step that is next and the loaders' cursors; model, optimisers and average are filled in place."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    about = read_about(folder)
    if about is None:
        raise TrainingError(f"{folder} has no state")
    reader = FileSystemReader(folder / FOLDER / about["folder"])
    parameters, wanted = trained(model), _tensors(model, (), average)
    values: dict[str, dict[str, Tensor]] = {}  # of the optimisers, by the parameter's name
    kept: Any
    for key, kept in reader.read_metadata().state_dict_metadata.items():
        if not key.startswith(OPTIMIZER):
            continue
        name, _, leaf = key.removeprefix(OPTIMIZER).rpartition(".")
        parameter, kind = parameters[name].detach(), kept.properties.dtype
        as_it_is = kept.size == parameter.shape
        value = torch.empty_like(parameter, dtype=kind) if as_it_is else torch.empty(kept.size, dtype=kind)
        values.setdefault(name, {})[leaf] = wanted[key] = value
    group = dist.new_group(backend="gloo") if ranks.size > 1 else None
    load(wanted, storage_reader=reader, process_group=group, no_dist=group is None)
    names = {parameter: name for name, parameter in parameters.items()}
    for optimizer in optimizers:
        members = [names[member] for group in optimizer.param_groups for member in group["params"]]
        state = {index: values[name] for index, name in enumerate(members) if name in values}
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    cursors = {
        int(stream): Cursor(one["draws"], tuple(one["positions"]), tuple(map(tuple, one["aside"])))
        for stream, one in about["cursors"].items()
    }
    return about["step"], cursors


def read_about(folder: Path) -> dict[str, Any] | None:
    """What the last whole state of a run says of itself; None where there is none."""
    path = folder / NAME
    about: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return about


def _tensors(model: nn.Module, optimizers: Optimizers, average: Average) -> dict[str, Tensor]:
    """Everything by name, sharded as it is."""
    parameters = trained(model)
    names: dict[Tensor, str] = {parameter: name for name, parameter in parameters.items()}
    return (
        {MODEL + name: parameter.detach() for name, parameter in parameters.items()}
        | {AVERAGE + name: weights for name, weights in average.weights.items() if average.decay}
        | {
            f"{OPTIMIZER}{names[parameter]}.{leaf}": value
            for optimizer in optimizers
            for parameter, values in optimizer.state.items()
            for leaf, value in values.items()
        }
    )


def _furthest(cursors: list[dict[int, Cursor]]) -> dict[int, Cursor]:
    """Of each stream the cursor of the rank that draws from it: the others have what they began with."""
    merged: dict[int, Cursor] = {}
    for stream, cursor in (item for held in cursors for item in held.items()):
        if stream not in merged or merged[stream].draws < cursor.draws:
            merged[stream] = cursor
    return merged


def _reason(error: BaseException) -> str:
    """What went wrong; of several ranks' failures, the first. PyTorch says where in its file it was, and not why."""
    failures = getattr(error, "failures", None)
    found: BaseException | None = next(iter(failures.values()))[0] if failures else error
    why = found
    while found is not None:
        if isinstance(found, OSError):
            return str(found)
        found = found.__cause__ or found.__context__
    return (str(why) or type(why).__name__).splitlines()[0]
