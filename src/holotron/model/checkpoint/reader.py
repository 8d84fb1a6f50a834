"""Reading a model from a checkpoint folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holotron.model.checkpoint import fp8_scales, int8
from holotron.model.checkpoint.config_json import read_config, read_raw_config
from holotron.model.checkpoint.names import Dialect, Stored, default_dialect, detect, is_dropped, is_kept
from holotron.model.checkpoint.source import CheckpointSource
from holotron.model.checkpoint.storage import WEIGHT_TYPES, TensorHeader, first_non_finite, open_tensors, read_headers
from holotron.model.config import ModelConfig, QwenVisionConfig
from holotron.model.errors import CheckpointError
from holotron.model.fp8 import FP8, place_fp8, quantizable, quantized, use_fp8, weight_scales
from holotron.model.model import Model
from holotron.model.parameters import parameter_type, place

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class OpenCheckpoint:
    """A checkpoint whose headers are read and fit: its model without weights, and which tensors hold them.

    dtype: what weights are to be kept in.
    """

    model: Model
    dtype: torch.dtype
    plan: dict[str, list[Stored]]
    headers: dict[str, TensorHeader]

    def unstored(self, name: str) -> float:
        """The value of a parameter that is not in the files: of the identity."""
        return float(name.endswith(".weight"))


def load_checkpoint(
    folder: str | Path,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    progress: Progress | None = None,
) -> Model:
    """The model of a checkpoint folder, read tensor by tensor straight to the device.

    Everything that headers can tell is checked before any data is read; on an error nothing is returned. Without a
    dtype the weights stay in the one they are stored in; with that of fp8 the decoder's layers are rounded to it, and
    the rest stays as stored. `progress` is told bytes done and bytes in all.
    """
    checkpoint = open_checkpoint(folder, None if dtype == FP8 else dtype)
    if dtype == FP8:
        use_fp8(checkpoint.model)
    elif dtype is None:
        headers, plan = checkpoint.headers, checkpoint.plan
        stored = [n for n in quantizable(checkpoint.model) if headers[plan[n][0].name].dtype == fp8_scales.STORED]
        use_fp8(checkpoint.model, stored)
    _fill(checkpoint, torch.device(device), progress)
    return checkpoint.model.eval()


def open_checkpoint(folder: str | Path, dtype: torch.dtype | None = None) -> OpenCheckpoint:
    """Read everything but the weights, and check that it fits."""
    folder = Path(folder)
    raw = read_raw_config(folder)
    headers = read_headers(folder)
    config = _fit_vision(read_config(folder), headers)
    dialect = _fit_experts(detect(headers, config), config, headers)
    if config.tied_embeddings and _has_own_head(config, dialect, headers):
        config = replace(config, tied_embeddings=False)
    with torch.device("meta"):
        model = Model(config)
    parameters = dict(model.named_parameters())
    plan = _plan(parameters, config, dialect, headers)
    if dtype is None:
        dtype = _torch_type(plan["decoder.embeddings.weight"][0], headers, raw)
    model.source = CheckpointSource(folder, raw, dialect, _read_kept(headers))
    return OpenCheckpoint(model, dtype, plan, headers)


def _fit_vision(config: ModelConfig, headers: dict[str, TensorHeader]) -> ModelConfig:
    """Take from the file what releases differ in and configs do not say: the number of prefix tokens."""
    if config.vision is None or isinstance(config.vision, QwenVisionConfig):
        return config
    for dialect in (default_dialect(config), default_dialect(config, released=False)):
        header = headers.get(dialect.stored("vision.prefix", config)[0].name)
        if header is not None and len(header.shape) == 2:
            return replace(config, vision=replace(config.vision, prefix_tokens=header.shape[0]))
    return config


def _has_own_head(config: ModelConfig, dialect: Dialect, headers: dict[str, TensorHeader]) -> bool:
    """Whether a head is stored that is not the embedding: it is the one to use then, whatever the config says."""
    head, embeddings = (dialect.stored(f"decoder.{name}.weight", config)[0].name for name in ("lm_head", "embeddings"))
    if head not in headers or embeddings not in headers:
        return False
    for suffix in ("", int8.SUFFIX, int8.REST):
        pair = [headers.get(name + suffix) for name in (head, embeddings)]
        if pair[0] is None or pair[1] is None:
            if pair[0] is not pair[1]:
                return True
            continue
        if (pair[0].shape, pair[0].dtype) != (pair[1].shape, pair[1].dtype):
            return True
        with open_tensors(pair[0].file) as one, open_tensors(pair[1].file) as other:
            if not torch.equal(one.get_tensor(head + suffix), other.get_tensor(embeddings + suffix)):
                return True
    return False


def _fit_experts(dialect: Dialect, config: ModelConfig, headers: dict[str, TensorHeader]) -> Dialect:
    """Qwen's experts are stored transposed or as they are: the shape of one that is not square tells."""
    if not dialect.dense or config.moe is None:
        return dialect
    square = config.moe.expert_size == config.hidden_size
    name = f"decoder.layers.{config.pattern.index('E')}.mixer.experts.{'gate_up_proj' if square else 'down_proj'}"
    header = headers.get(dialect.stored(name, config)[0].name)
    rows = 2 * config.hidden_size if square else config.hidden_size
    return replace(dialect, released=header is None or header.shape[1:2] != (rows,))


def _plan(
    parameters: dict[str, nn.Parameter], config: ModelConfig, dialect: Dialect, headers: dict[str, TensorHeader]
) -> dict[str, list[Stored]]:
    """Which stored tensors fill which parameter; every mismatch of names, shapes and types is an error here."""
    plan = {name: dialect.stored(name, config) for name in parameters}
    for name in [name for name in plan if name.startswith("vision.final_norm.")]:
        # Releases with this norm do not store it: it is the identity then.
        if plan[name][0].name not in headers:
            del plan[name]
    wanted = {stored.name: (name, stored) for name, tensors in plan.items() for stored in tensors}
    if missing := [name for name in wanted if name not in headers]:
        raise CheckpointError(f"the checkpoint lacks {_listed(missing)}")
    tied = dialect.stored("decoder.lm_head.weight", config)[0].name if config.tied_embeddings else None
    scales = {name + end for name in wanted if headers[name].dtype == "I8" for end in (int8.SUFFIX, int8.REST)}
    scales |= {fp8_scales.scale_of(name, headers) for name in wanted if headers[name].dtype == fp8_scales.STORED}
    if any(headers[name].dtype == fp8_scales.STORED for name in wanted):
        scales |= {name for name in headers if fp8_scales.PASSED_OVER.search(name)}
    unexpected = [
        n for n in headers if n not in wanted and n not in scales and not is_kept(n) and not is_dropped(n) and n != tied
    ]
    if unexpected:
        raise CheckpointError(f"the checkpoint has tensors that its config does not call for: {_listed(unexpected)}")
    for stored_name, (name, stored) in wanted.items():
        header, shape = headers[stored_name], stored.part_of(parameters[name]).shape
        if header.shape != tuple(shape):
            raise CheckpointError(f"{stored_name} has shape {list(header.shape)}, the config calls for {list(shape)}")
        if header.dtype == "I8" and stored_name + int8.SUFFIX in headers:
            _check_packed(stored_name, headers)
        elif header.dtype not in (*WEIGHT_TYPES, fp8_scales.STORED):
            raise CheckpointError(
                f"{stored_name} is stored as {header.dtype}; checkpoints quantised so are not supported, use the "
                f"release in {' or '.join((*WEIGHT_TYPES[1:], fp8_scales.STORED))}"
            )
    return plan


def _check_packed(name: str, headers: dict[str, TensorHeader]) -> None:
    matrix = headers[name]
    rows, columns = matrix.shape if len(matrix.shape) == 2 else (0, 0)
    for end, dtype, shape in (
        (int8.SUFFIX, "F16", (rows, columns // int8.GROUP)),
        (int8.REST, "U8", (rows, columns // 2)),
    ):
        part = headers.get(name + end)
        if part and (part.shape != shape or part.dtype != dtype or part.file != matrix.file or not rows):
            raise CheckpointError(
                f"{name} is stored in 8 bits, and {name}{end} is {part.dtype} {list(part.shape)} in "
                f"{part.file.name}; it must be {dtype} {list(shape)} in {matrix.file.name}"
            )


def _fill(checkpoint: OpenCheckpoint, device: torch.device, progress: Progress | None) -> None:
    model, plan, headers, dtype = checkpoint.model, checkpoint.plan, checkpoint.headers, checkpoint.dtype
    parameters = dict(model.named_parameters())
    total = sum(parameter.numel() for parameter in parameters.values()) * dtype.itemsize
    done = 0
    by_file: dict[Path, list[tuple[str, Stored]]] = {}
    for name, tensors in plan.items():
        for stored in tensors:
            by_file.setdefault(headers[stored.name].file, []).append((name, stored))
    for name, parameter in parameters.items():
        if name not in plan:
            place(model, name, torch.full(parameter.shape, checkpoint.unstored(name), device=device, dtype=dtype))
    eight_bit = weight_scales(model)
    for file, wanted in by_file.items():
        with open_tensors(file, device) as tensors:
            read: list[tuple[str, Tensor]] = []
            for name, stored in wanted:
                data = stored_tensor(stored.name, headers, tensors)
                done += data.numel() * dtype.itemsize
                scale = scale_tensor(stored.name, headers, tensors, device)
                if name in eight_bit:
                    values_OI, scale_O = _rows_in_fp8(data, scale)
                    place_fp8(model, name, values_OI, scale_O)
                    read += [(stored.name, values_OI), (stored.name, scale_O)]
                else:
                    target = model.get_parameter(name)
                    if target.is_meta:
                        place(model, name, torch.empty(target.shape, device=device, dtype=parameter_type(name, dtype)))
                        target = model.get_parameter(name)
                    part = stored.part_of(target.data)
                    part.copy_(unpacked(data, scale))
                    read.append((stored.name, part))
                if progress:
                    progress(done, total)
            if bad := first_non_finite(read):
                raise CheckpointError(f"{bad} in {file.name} holds NaN or infinity; the file is damaged")


def stored_tensor(name: str, headers: dict[str, TensorHeader], tensors: Any) -> Tensor:
    """A tensor as it is stored, before its scales."""
    data: Tensor = tensors.get_tensor(name)
    if data.dtype == torch.int8 and name + int8.REST in headers:
        return int8.with_rest(data, tensors.get_tensor(name + int8.REST))
    return data


def scale_tensor(name: str, headers: dict[str, TensorHeader], tensors: Any, device: torch.device) -> Tensor | None:
    """The scales of a matrix in 8 bits, which may lie in another file than its own, which is open."""
    header = headers[name]
    if header.dtype not in ("I8", fp8_scales.STORED):
        return None
    named = name + int8.SUFFIX if header.dtype == "I8" else fp8_scales.scale_of(name, headers)
    elsewhere = headers[named].file != header.file
    with open_tensors(headers[named].file, device) if elsewhere else nullcontext(tensors) as holder:
        return holder.get_tensor(named)


def unpacked(data: Tensor, scale: Tensor | None) -> Tensor:
    """What a stored tensor stands for."""
    if scale is None:
        return data
    return fp8_scales.unpack(data, scale) if data.dtype == FP8 else int8.unpack(data, scale)


def _rows_in_fp8(data: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """A matrix in e4m3 with a scale for each row: as it is stored, where it is stored so, or rounded."""
    same = None if scale is None or data.dtype != FP8 else fp8_scales.by_row(data, scale)
    return same or quantized(unpacked(data, scale))


def _read_kept(headers: dict[str, TensorHeader]) -> dict[str, Tensor]:
    kept: dict[str, Tensor] = {}
    for name, header in headers.items():
        if not is_kept(name):
            continue
        with open_tensors(header.file) as tensors:
            kept[name] = tensors.get_tensor(name).clone()
        if name.endswith("lambda1") and not torch.all(kept[name] == 1):
            raise CheckpointError(f"{name} is not all ones; vision towers with LayerScale are not supported")
    return kept


def _torch_type(stored: Stored, headers: dict[str, TensorHeader], raw: dict[str, Any]) -> torch.dtype:
    """What the weights are stored in; of 8-bit ones, what they were before, which the config says."""
    types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    named = {str(kind).removeprefix("torch."): kind for kind in types.values()}
    return types.get(headers[stored.name].dtype) or named.get(str(raw.get("dtype")), torch.bfloat16)


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(sorted(names)[:most]) + more
