"""LoRA adapters beside a model's own weights: several at once, and every row of a batch has its own or none.

Shapes: T tokens, I inputs and O outputs of a linear layer, K ranks of all adapters that change it, one behind another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holotron.model.checkpoint.adapter import LowRank, read_adapter
from holotron.model.errors import ModelError
from holotron.model.model import Model

# Which adapter a row has, by number; 0 is none. One number stands for all rows, None for no adapter at all.
Rows = Tensor | int | None


class AdapterSet:
    """The adapters of a model, numbered from 1 in the order they were given, and which of them are in use."""

    def __init__(self, names: tuple[str, ...], in_vision: frozenset[int]) -> None:
        self.names = names
        self.rows: Rows = None
        self._in_vision = in_vision

    def number(self, name: str | None) -> int:
        """The number of that adapter; None is the model alone."""
        if name is None:
            return 0
        if name not in self.names:
            raise ModelError(f"there is no adapter {name!r}; loaded are {', '.join(self.names)}")
        return self.names.index(name) + 1

    def seen_by(self, number: int) -> int:
        """The adapter that images are encoded with: none where it leaves the tower and the projector as they are."""
        return number if number in self._in_vision else 0

    @contextmanager
    def using(self, rows: Rows) -> Iterator[None]:
        """Inside, the model computes with these adapters."""
        self.rows = rows
        try:
            yield
        finally:
            self.rows = None


class AdapterLinear(nn.Linear):
    """W x + b, and for the rows of an adapter its B (A x), scaled. W and b are the layer's own, under their names."""

    lora_A: Tensor
    lora_B: Tensor
    owners: Tensor

    def __init__(self, base: nn.Linear, changes: Mapping[int, LowRank], adapters: AdapterSet) -> None:
        nn.Module.__init__(self)  # not Linear's: nothing is to be drawn that is thrown away again
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        self._adapters = adapters
        ranks = torch.tensor([len(change.A_RI) for change in changes.values()])
        owners_K = torch.tensor(list(changes)).repeat_interleave(ranks)
        # Not parameters: they are no weights of the model, and stay where they are when those are replaced or written.
        self.register_buffer("owners", owners_K.to(base.weight.device), persistent=False)
        lora_A_KI = torch.cat([change.A_RI for change in changes.values()])
        lora_B_OK = torch.cat([change.B_OR for change in changes.values()], dim=1)
        self.register_buffer("lora_A", lora_A_KI.to(self.weight), persistent=False)
        self.register_buffer("lora_B", lora_B_OK.to(self.weight), persistent=False)

    def forward(self, x_TI: Tensor) -> Tensor:
        out_TO, rows = super().forward(x_TI), self._adapters.rows
        if rows is None:
            return out_TO
        # All adapters are computed for all rows, and what is not a row's own counts nothing: ranks are small, and so
        # the shapes are the same whoever comes together in a batch, which CUDA graphs need.
        others = self.owners != (rows[:, None] if isinstance(rows, Tensor) else rows)
        low_TK = F.linear(x_TI, self.lora_A).masked_fill(others, 0)
        return out_TO + F.linear(low_TK, self.lora_B)


def load_adapters(model: Model, folders: Mapping[str, str | Path]) -> None:
    """Give a model adapters by name, from folders as PEFT writes them; all of them, or an error and none."""
    if not folders:
        return
    if model.adapters is not None:
        raise ModelError(f"{model.config.name} has adapters already: {', '.join(model.adapters.names)}")
    read = [read_adapter(model, name, Path(folder)) for name, folder in folders.items()]
    changed: dict[str, dict[int, LowRank]] = {}
    for number, changes in enumerate(read, 1):
        for layer, change in changes.items():
            changed.setdefault(layer, {})[number] = change
    seen = frozenset(number for layer, by in changed.items() if not layer.startswith("decoder.") for number in by)
    model.adapters = AdapterSet(tuple(folders), seen)
    for layer, by_number in changed.items():
        parent, _, leaf = layer.rpartition(".")
        base = model.get_submodule(layer)
        assert isinstance(base, nn.Linear)
        setattr(model.get_submodule(parent), leaf, AdapterLinear(base, by_number, model.adapters))
