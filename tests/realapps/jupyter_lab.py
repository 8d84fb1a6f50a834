"""JupyterLab, from the login by token to a notebook that was run, named and saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.realapps.application import Application, Do, write

TOKEN = "a token & more: 0123456789"
CODE = "print(6 * 7)"
OUTPUT = ".jp-OutputArea-output pre"

# Log in by token, make a notebook, write code in its cell and run it, save it under a name, look at the file in
# another tab, and say what came out.
SCRIPT = [
    write("#password_input", "{{secret:token}}", enter=True),
    Do("click", ".jp-LauncherCard[data-category=Notebook]"),
    Do("click", ".jp-Notebook .jp-Cell .cm-content"),
    Do("type", fields={"text": CODE}),
    Do("press", fields={"keys": "Shift+Enter"}),
    Do("wait", fields={"seconds": 5}),  # a kernel starts, and nothing is under way that an agent could wait for
    Do("hover", OUTPUT),
    Do("press", fields={"keys": "Control+S"}),
    write(".jp-Dialog input", "answer.ipynb"),
    Do("click", ".jp-Dialog .jp-mod-accept"),
    Do("new_tab"),
    Do("goto", fields={"url": "ORIGIN/lab/workspaces/second/tree/answer.ipynb"}),
    Do("hover", OUTPUT),
    Do("switch_tab", fields={"index": 0}),
    Do("answer", read=OUTPUT),
]


def _command(python: Path, folder: Path, port: int) -> list[str]:
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.open_browser": False,
        "ServerApp.allow_root": True,
        "ServerApp.root_dir": folder,
        "IdentityProvider.token": TOKEN,
    }
    return [str(python), "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]


def _state(folder: Path, origin: str) -> Any:
    made = {}
    for path in folder.glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        made[path.name] = [
            {"source": "".join(cell["source"]), "output": "".join(cell["outputs"][0]["text"])}
            for cell in cells
            if cell["source"]
        ]
    return made


def _wanted() -> Any:
    return {"answer.ipynb": [{"source": CODE, "output": "42\n"}]}


JUPYTER = Application(
    package="jupyterlab",
    task="Compute 6 * 7 in a notebook called answer, and say the result.",
    start="/lab",
    secret=("token", TOKEN),
    script=SCRIPT,
    command=_command,
    ready="/login",
    state=_state,
    wanted=_wanted,
)
