"""How a policy wants to be asked: `policy.json` beside its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holotron.agent.prompts import WIDGET_KINDS, NavigationForm
from holotron.model.errors import ModelError

NAME = "policy.json"
# What small policies are taught: a page, no address bar and no tabs.
TERSE_KINDS = (*WIDGET_KINDS, "answer")


@dataclass(frozen=True)
class PolicyFormat:
    """terse: the task once, then screens alone, and the bare action in answer. size: the view it is best at."""

    terse: bool = False
    size: tuple[int, int] | None = None

    def form(self, kinds: tuple[str, ...] = TERSE_KINDS) -> NavigationForm:
        return NavigationForm(kinds, reasons=not self.terse, terse=self.terse)


# How policies are taught by `holotron.train`, on pages of about this size.
TAUGHT = PolicyFormat(terse=True, size=(1024, 768))
# How a small policy is asked on MiniWoB++, when it is taught and when it is judged.
WIDGET_FORM = TAUGHT.form(WIDGET_KINDS)


def save_policy_format(manner: PolicyFormat, folder: Path) -> None:
    size = None if manner.size is None else list(manner.size)
    (folder / NAME).write_text(json.dumps({"terse": manner.terse, "size": size}) + "\n", encoding="utf-8")


def read_policy_format(folder: Path) -> PolicyFormat | None:
    """The manner that a checkpoint folder asks for, or None if it asks for none."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        size = value.get("size")
        return PolicyFormat(bool(value["terse"]), None if size is None else (int(size[0]), int(size[1])))
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ModelError(f"{path} cannot be read: {error!r}") from error
