"""The safetensors files of a checkpoint folder: which tensor lies where, in what shape, read without a second copy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from holotron.model.errors import CheckpointError

INDEX = "model.safetensors.index.json"
WEIGHT_TYPES = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True)
class TensorHeader:
    """What a file's header says about one of its tensors."""

    file: Path
    shape: tuple[int, ...]
    dtype: str


def read_headers(folder: Path) -> dict[str, TensorHeader]:
    """Every tensor of the checkpoint by name; no data is read."""
    headers: dict[str, TensorHeader] = {}
    for file in _files(folder):
        with open_tensors(file) as tensors:
            for name in tensors.keys():  # noqa: SIM118 - this is not a dict
                if name in headers:
                    raise CheckpointError(f"tensor {name} is in both {headers[name].file.name} and {file.name}")
                part = tensors.get_slice(name)
                headers[name] = TensorHeader(file, tuple(part.get_shape()), part.get_dtype())
    return headers


@contextmanager
def open_tensors(file: Path, device: torch.device | str = "cpu") -> Iterator[Any]:
    """The file mapped into memory; tensors go straight from it to the device."""
    try:
        with safe_open(str(file), framework="pt", device=str(device)) as tensors:
            yield tensors
    except SafetensorError as error:
        raise CheckpointError(
            f"{file} is truncated or not a safetensors file ({error}); download it again or convert it"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from None


def _files(folder: Path) -> list[Path]:
    index = folder / INDEX
    if index.exists():
        return _indexed_files(folder, index)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        others = sorted(p.name for p in folder.glob("*") if p.suffix in (".bin", ".pt", ".pth", ".ckpt", ".gguf"))
        found = f"; it has {', '.join(others)}, and only safetensors files are read" if others else ""
        raise CheckpointError(f"{folder} has no *.safetensors files{found}")
    return files


def _indexed_files(folder: Path, index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index} is not a safetensors index: {error}") from None
    for name in names:
        # An index comes with the checkpoint: it may name files beside it and nothing else.
        if not isinstance(name, str) or Path(name).name != name:
            raise CheckpointError(f"{index} points to {name!r}, which is not a file beside it")
        if not name.endswith(".safetensors"):
            raise CheckpointError(f"{index} points to {name}; only safetensors files are read")
        if not (folder / name).is_file():
            raise CheckpointError(f"{index} lists {name}, which is missing; download the checkpoint again")
    return [folder / name for name in names]


def first_non_finite(tensors: list[tuple[str, Tensor]]) -> str | None:
    """Name of the first tensor that holds NaN or infinity, found with one wait for the device."""
    if not tensors:
        return None
    finite = torch.stack([_is_finite(tensor) for _, tensor in tensors]).tolist()
    return next((name for (name, _), good in zip(tensors, finite, strict=True) if not good), None)


def _is_finite(tensor: Tensor) -> Tensor:
    if tensor.dtype != torch.float8_e4m3fn:
        return torch.isfinite(tensor).all()
    return ((tensor.view(torch.uint8) & 0x7F) != 0x7F).all()  # NaN; this type has no infinity
