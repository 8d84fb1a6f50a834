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

from holotron.model.checkpoint.adapter import LowRank, linear_layers, read_adapter
from holotron.model.errors import ModelError
from holotron.model.fp8 import linear
from holotron.model.model import Model

# Which adapter a row has, by number; 0 is none. One number stands for all rows, None for no adapter at all.
Rows = Tensor | int | None


class AdapterSet:
    """The adapters of a model, and which of them are in use.

    Each has a number, from 1, that is never given again: what was computed with one is not taken for another's. One
    that was replaced or removed has no name any more, and stays for those who have its number until it is freed.
    """

    def __init__(self) -> None:
        self.rows: Rows = None
        self._numbers: dict[str, int] = {}
        self._named: dict[int, str] = {}
        self._changes: dict[int, Mapping[str, LowRank]] = {}
        self._last = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._numbers)

    def number(self, name: str | None) -> int:
        """The number of that adapter; None is the model alone."""
        if name is None:
            return 0
        if name not in self._numbers:
            raise ModelError(f"there is no adapter {name!r}; loaded are {', '.join(self._numbers) or 'none'}")
        return self._numbers[name]

    def name(self, number: int) -> str | None:
        """What the adapter of that number is or was called."""
        return self._named.get(number)

    def seen_by(self, number: int) -> int:
        """The adapter that images are encoded with: none where it leaves the tower and the projector as they are."""
        changed = self._changes.get(number, {})
        return number if any(not layer.startswith("decoder.") for layer in changed) else 0

    def add(self, name: str, changes: Mapping[str, LowRank]) -> None:
        """Give a name an adapter, in place of the one that it has."""
        self._last += 1
        self._numbers[name], self._named[self._last], self._changes[self._last] = self._last, name, changes

    def replace(self, name: str, changes: Mapping[str, LowRank]) -> None:
        """Give the adapter of that name other values, under the number that it has."""
        self._changes[self.number(name)] = changes

    def remove(self, name: str) -> None:
        self.number(name)  # ModelError where there is none
        del self._numbers[name]

    def free(self, used: set[int]) -> None:
        """Forget the adapters that have neither a name nor one of these numbers."""
        used = used | set(self._numbers.values())
        self._changes = {number: changes for number, changes in self._changes.items() if number in used}

    def changes_by_layer(self) -> dict[str, dict[int, LowRank]]:
        by_layer: dict[str, dict[int, LowRank]] = {}
        for number, changes in self._changes.items():
            for layer, change in changes.items():
                by_layer.setdefault(layer, {})[number] = change
        return by_layer

    @contextmanager
    def using(self, rows: Rows) -> Iterator[None]:
        """Inside, the model computes with these adapters."""
        self.rows = rows
        try:
            yield
        finally:
            self.rows = None


class AdapterLinear(nn.Linear):
    """W x + b, and for the rows of an adapter its B (A x), scaled. W and b are the layer's own, under their names.

    W may have 8 bits; A and B have those of the model's other weights.
    """

    weight_scale: Tensor | None
    lora_A: Tensor
    lora_B: Tensor
    owners: Tensor

    def __init__(self, base: nn.Linear, adapters: AdapterSet) -> None:
        nn.Module.__init__(self)  # not Linear's: nothing is to be drawn that is thrown away again
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        self.register_buffer("weight_scale", getattr(base, "weight_scale", None))
        self._adapters = adapters

    def fill(self, changes: Mapping[int, LowRank], dtype: torch.dtype) -> None:
        """Take these changes, by number, in place of those that were there."""
        ranks = torch.tensor([len(change.A_RI) for change in changes.values()], dtype=torch.long)
        ends = ranks.cumsum(0)
        starts = zip(changes, (ends - ranks).tolist(), ends.tolist(), strict=True)
        self._places = {number: slice(start, end) for number, start, end in starts}
        owners_K = torch.tensor(list(changes), dtype=torch.long).repeat_interleave(ranks)
        # Not parameters: they are no weights of the model, and stay where they are when those are replaced or written.
        self.register_buffer("owners", owners_K.to(self.weight.device), persistent=False)
        like = torch.empty(0, device=self.weight.device, dtype=dtype)
        A_KI = [like.new_zeros(0, self.in_features), *(each.A_RI.to(like) for each in changes.values())]
        B_OK = [like.new_zeros(self.out_features, 0), *(each.B_OR.to(like) for each in changes.values())]
        self.register_buffer("lora_A", torch.cat(A_KI), persistent=False)
        self.register_buffer("lora_B", torch.cat(B_OK, 1), persistent=False)

    def change(self, number: int) -> LowRank | None:
        """The change of that adapter as it is computed with: a view."""
        place = self._places.get(number)
        return None if place is None else LowRank(self.lora_A[place], self.lora_B[:, place])

    def forward(self, x_TI: Tensor) -> Tensor:
        out_TO, rows = linear(x_TI, self.weight, self.bias, self.weight_scale), self._adapters.rows
        if rows is None or not len(self.owners):
            return out_TO
        # All adapters are computed for all rows, and what is not a row's own counts nothing: ranks are small, and so
        # the shapes are the same whoever comes together in a batch, which CUDA graphs need.
        others = self.owners != (rows[:, None] if isinstance(rows, Tensor) else rows)
        low_TK = F.linear(x_TI.to(self.lora_A.dtype), self.lora_A).masked_fill(others, 0)
        return out_TO + F.linear(low_TK, self.lora_B)


def load_adapters(model: Model, folders: Mapping[str, str | Path]) -> None:
    """Give a model adapters by name, from folders as PEFT writes them; all of them, or an error and none."""
    read = {name: read_served(model, name, folder) for name, folder in folders.items()}
    adapters = model.adapters = (model.adapters or AdapterSet()) if read else model.adapters
    for name, changes in read.items():
        assert adapters is not None
        adapters.add(name, changes)
    fill_layers(model)


def read_served(model: Model, name: str, folder: str | Path) -> dict[str, LowRank]:
    """What an adapter changes, where that can be computed beside the model's own weights."""
    read, linears = read_adapter(model, name, Path(folder)), linear_layers(model)
    if experts := [weight for weight in read if weight not in linears]:
        raise ModelError(
            f"adapter {name}: it changes routed experts ({experts[0]}), which cannot be served beside the base; write "
            f"a model with it by `holotron train merge BASE {folder} --out DIR`, and serve that"
        )
    return read


def fill_layers(model: Model) -> None:
    """Have the layers of a model compute what its adapters are now."""
    if model.adapters is None:
        return
    by_layer = model.adapters.changes_by_layer()
    for layer, base in linear_layers(model).items():
        if layer in by_layer and not isinstance(base, AdapterLinear):
            base = AdapterLinear(base, model.adapters)
            model.set_submodule(layer, base)
        if isinstance(base, AdapterLinear):
            base.fill(by_layer.get(layer, {}), model.dtype)


def held_changes(model: Model, name: str) -> dict[str, LowRank]:
    """What a model computes with for an adapter, by layer: views, in the type of the weights."""
    assert model.adapters is not None
    number, linears = model.adapters.number(name), linear_layers(model).items()
    changes = {layer: base.change(number) for layer, base in linears if isinstance(base, AdapterLinear)}
    return {layer: change for layer, change in changes.items() if change is not None}
