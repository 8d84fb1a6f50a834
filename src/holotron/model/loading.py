"""From a name to a model: presets, hub ids and folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holotron.model.errors import ModelError
from holotron.model.presets import PRESETS

if TYPE_CHECKING:
    import torch

    from holotron.model.checkpoint.reader import Progress
    from holotron.model.model import Model

# Weights that come with the package, a folder each.
BUNDLED = Path(__file__).with_name("weights")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja"]


def load(
    name_or_path: str | Path,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    *,
    random_weights: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    adapters: Mapping[str, str | Path] | None = None,
) -> Model:
    """The model of a checkpoint folder, a hub id such as "Hcompany/Holotron-12B", or a preset name.

    The device defaults to the GPU where there is one, the dtype to that of the checkpoint; torch.float8_e4m3fn rounds
    the decoder's layers to 8 bits, one by one. With random_weights a preset is made in memory and nothing is read.
    adapters: LoRA adapters by name, each a folder as PEFT writes it; `model.using(name)` computes with one, and an
    engine's sessions name theirs.
    """
    # Here, because finding a checkpoint takes none of it: a server's HTTP process starts without torch.
    import torch

    from holotron.model.adapters import load_adapters
    from holotron.model.checkpoint.reader import load_checkpoint
    from holotron.model.initialize import random_model

    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    name = str(name_or_path)
    if random_weights:
        if name not in PRESETS:
            raise ModelError(f"random weights need a preset, and {name!r} is none; known are {', '.join(PRESETS)}")
        kind = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
        model = random_model(PRESETS[name].config, device, kind, seed)
    else:
        model = load_checkpoint(find_checkpoint(name), device, dtype, progress)
    load_adapters(model, adapters or {})
    return model


def find_checkpoint(name: str) -> Path:
    """The folder that holds the checkpoint of that name, downloaded if it must be."""
    if name and Path(name).is_dir():
        return Path(name)
    if (BUNDLED / name / "config.json").is_file() and name in PRESETS:
        return BUNDLED / name
    hub_id = name
    if name in PRESETS:
        preset_id = PRESETS[name].hub_id
        if preset_id is None:
            raise ModelError(
                f"the weights of {name} are not in this installation (expected in {BUNDLED / name}); install the "
                "package whole, give a checkpoint folder, or ask for random weights"
            )
        hub_id = preset_id
    elif name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelError(
            f"{name!r} is neither a folder, nor a hub id such as Hcompany/Holotron-12B, nor a preset; presets are "
            + ", ".join(PRESETS)
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_HUB_FILES))
    except Exception as error:  # the hub client and the network raise many types; the way out is the same
        raise ModelError(
            f"{hub_id} could not be fetched from the model hub ({type(error).__name__}: {error}); check the name, the "
            "network and HF_TOKEN, or download it elsewhere and give the folder"
        ) from error
