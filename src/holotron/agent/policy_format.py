"""Which format a model is asked in: by name, by what its checkpoint states, or by the family it is of.

A format (`formats/base.py`) says how one family of models is asked for a step and how its answers are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holotron.agent.formats.base import WIDGET_KINDS
from holotron.agent.formats.base import PolicyFormat as PolicyFormat  # formats are had from here, too
from holotron.agent.formats.holo import Holo1Format, Holo2Format, Holo15Format
from holotron.agent.formats.holotron import HolotronFormat
from holotron.agent.formats.plain import BareJsonFormat as BareJsonFormat
from holotron.agent.formats.plain import JsonFormat as JsonFormat
from holotron.agent.formats.plain import NanoFormat as NanoFormat
from holotron.agent.formats.qwen_vl import Qwen25VLFormat, QwenVLFormat
from holotron.agent.formats.ui_tars import UITarsFormat
from holotron.model.errors import ModelError

NAME = "policy.json"

FORMATS: dict[str, type[PolicyFormat]] = {
    kind.name: kind
    for kind in (
        NanoFormat,
        JsonFormat,
        BareJsonFormat,
        Holo1Format,
        Holo15Format,
        Holo2Format,
        HolotronFormat,
        UITarsFormat,
        QwenVLFormat,
        Qwen25VLFormat,
    )
}
# How policies are taught by `holotron.train`.
NANO: PolicyFormat = NanoFormat()
# How a small policy is asked on MiniWoB++, when it is taught and when it is judged.
NANO_WIDGETS = NANO.with_kinds(WIDGET_KINDS)


def find_format(spec: str) -> PolicyFormat:
    """A format by its name, with a date and kinds of actions where it has them, as in `json:click,type,answer`."""
    dated, _, kinds = spec.partition(":")
    name, _, date = dated.partition("@")
    if name not in FORMATS:
        raise ValueError(f"there is no policy format {name!r}; choose one of {', '.join(FORMATS)}")
    found = FORMATS[name]().on(date)
    return found.with_kinds(kinds.split(",")) if kinds else found


def format_of(folder: Path) -> PolicyFormat | None:
    """How the model of a checkpoint folder is asked: as its policy.json states, else as its family is; else None."""
    return stated_format(folder) or _recognised(folder)


def stated_format(folder: Path) -> PolicyFormat | None:
    """The format that a checkpoint folder names in its policy.json, or None if it names none."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        return read_format(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error!r}") from error


def read_format(value: dict[str, Any]) -> PolicyFormat:
    """The format that `told` describes; ValueError where there is none like it."""
    try:
        if unknown := value.keys() - {"format", "size"}:
            raise ValueError(f"unknown field {min(unknown)!r}")
        found = find_format(value["format"])
        size = value.get("size", found.size)
        return replace(found, size=None if size is None else (int(size[0]), int(size[1])))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"no policy format: {error!r}") from error


def told(policy_format: PolicyFormat) -> dict[str, Any]:
    """The format as policy.json has it, and as a server tells its clients."""
    size = None if policy_format.size is None else list(policy_format.size)
    return {"format": policy_format.spec, "size": size}


def save_format(policy_format: PolicyFormat, folder: Path) -> None:
    (folder / NAME).write_text(json.dumps(told(policy_format)) + "\n", encoding="utf-8")


# ---- families ----

# By the model's name, the more special first: a fine-tuned model keeps the architecture of its base.
_NAMES = (
    (r"holo-?1[._-]5(?!\d)", Holo15Format),
    (r"holo-?1(?!\d)", Holo1Format),
    (r"holo-?[234](?!\d)", Holo2Format),
    (r"holotron-(nano|\d+m)", NanoFormat),
    (r"holotron", HolotronFormat),
    (r"ui-?tars-?1[._-]5", UITarsFormat),
    (r"qwen-?2[._-]5-?vl", Qwen25VLFormat),
    (r"qwen-?3-?vl", QwenVLFormat),
)
_ARCHITECTURES: Mapping[str, type[PolicyFormat]] = {
    "qwen2_5_vl": Qwen25VLFormat,
    "qwen3_vl": QwenVLFormat,
    "qwen3_vl_moe": QwenVLFormat,
}


def format_of_name(name: str) -> PolicyFormat | None:
    """The format of the family that a model's name tells, such as `Hcompany/Holo2-8B`; None where it tells none."""
    last = name.rstrip("/").rsplit("/", 1)[-1].lower().replace("_", "-")
    return next((family() for pattern, family in _NAMES if re.search(pattern, last)), None)


def _recognised(folder: Path) -> PolicyFormat | None:
    """The format by the model's name, its folder's or the one it was made from, else by its architecture."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict):
        return None
    # In the hub's cache a folder is models--ORG--NAME/snapshots/REVISION.
    cached = next((part.rsplit("--", 1)[-1] for part in folder.absolute().parts if part.startswith("models--")), "")
    for name in (cached or folder.absolute().name, str(config.get("_name_or_path") or "")):
        if found := format_of_name(name):
            return found
    family = _ARCHITECTURES.get(str(config.get("model_type")))
    return family() if family else None
