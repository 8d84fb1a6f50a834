"""Training needs no more than torch, numpy, safetensors, pillow and tokenizers, until an episode store is read."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = (
    "pydantic",
    "pydantic_core",
    "playwright",
    "typer",
    "rich",
    "llguidance",
    "fastapi",
    "httpx",
    "pyarrow",
)
PROGRAM = f"""
import pkgutil, sys
for name in {BLOCKED!r}:
    sys.modules[name] = None
import holotron.train
for module in pkgutil.iter_modules(holotron.train.__path__):
    if module.name != "__main__":
        __import__("holotron.train." + module.name)
import holotron.train.__main__
"""


def test_train_imports_without_what_only_the_rest_needs() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
