"""What a machine needs for Holotron, one check per thing, each with the command that puts it right."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from holotron.cli.errors import told
from holotron.cli.output import GIB, size
from holotron.env.browser.chromium import WINDOW_FIX, find_chromium, has_screen

State = Literal["ok", "note", "missing"]

MEMORY_WANTED = 4 * GIB
# The weights of the 12B in bf16 and some room beside them.
DISK_WANTED = 30 * GIB
FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts")
FONT_FAMILIES = ("Liberation", "DejaVu", "Noto")


Finding = tuple[State, str] | tuple[State, str, str]  # what there is, in which words, and the command that helps


@dataclass(frozen=True)
class Check:
    """The finding about one thing. A required thing that is missing makes the machine unfit."""

    name: str
    state: State
    detail: str
    needed_for: str
    fix: str | None = None
    required: bool = False

    @property
    def failed(self) -> bool:
        return self.required and self.state == "missing"


@dataclass(frozen=True)
class Package:
    """A distribution, the versions that work (from `least` up to but not including `below`), and what needs it."""

    name: str
    least: str = ""
    below: str = ""
    needed_for: str = "everything"
    required: bool = True
    module: str = ""
    gpu_only: bool = False
    import_it: bool = False

    @property
    def requirement(self) -> str:
        limits = [f">={self.least}" if self.least else "", f"<{self.below}" if self.below else ""]
        return self.name + ",".join(limit for limit in limits if limit)

    @property
    def fix(self) -> str:
        return f"python -m pip install {shlex.quote(self.requirement)}"

    @property
    def reinstall(self) -> str:
        return f"python -m pip install --force-reinstall {shlex.quote(self.requirement)}"


PACKAGES = (
    # Imported for proof: torch can be installed and still lack a library of the system or of CUDA.
    Package("torch", "2.11", "2.14", import_it=True),
    Package("numpy", "1.26"),
    Package("safetensors", "0.5"),
    Package("tokenizers", "0.21"),
    Package("jinja2", "3.1"),
    Package("pillow", "11", module="PIL"),
    Package("huggingface_hub", "0.30"),
    Package("llguidance", "1.9"),
    Package("pydantic", "2.10"),
    Package("fastapi", "0.115"),
    Package("uvicorn", "0.34"),
    Package("httpx", "0.28"),
    Package("httpcore", "1.0.9"),
    Package("idna", "3.7"),
    Package("prometheus-client", "0.21", module="prometheus_client"),
    Package("playwright", "1.49"),
    Package("pyarrow", "21"),
    Package("pyyaml", "6.0.3", module="yaml"),
    Package("triton", needed_for="fast kernels on a GPU", required=False, gpu_only=True),
    Package("miniwob", "1.1", needed_for="the MiniWoB++ evaluation", required=False),
)


def run_checks() -> list[Check]:
    """Every check in turn. One that breaks is reported as that check's problem and does not stop the others."""
    packages = [(each.name, each.needed_for, each.required, partial(check_package, each)) for each in PACKAGES]
    checks: list[tuple[str, str, bool, Callable[[], Finding]]] = [
        ("python", "everything", True, check_python),
        *packages,
        ("GPU", "models beyond laptop size", False, check_gpu),
        ("memory", "holding a model", False, check_memory),
        ("disk", "downloading a model", False, check_disk),
        ("chromium", "web tasks", False, check_chromium),
        ("window", "run --headed", False, check_window),
        ("fonts", "screenshots that look right", False, check_fonts),
    ]
    return [run_check(*check) for check in checks]


def run_check(name: str, needed_for: str, required: bool, check: Callable[[], Finding]) -> Check:
    try:
        state, detail, *fix = check()
    except Exception as error:
        state, detail, fix = "missing" if required else "note", f"this check broke: {told(error)}", []
    return Check(name, state, detail, needed_for, fix[0] if fix else None, required)


# ---- Python and its packages --------------------------------------------------------------------------------------


def check_python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return "ok", version
    fix = "uv venv --python 3.13   (or install Python 3.11, 3.12 or 3.13)"
    return "missing", f"{version} is not 3.11 to 3.13", fix


def check_package(package: Package) -> Finding:
    if importlib.util.find_spec(package.module or package.name) is None:
        if package.gpu_only and not has_driver():
            return "note", "not installed; only a GPU has a use for it"
        return "missing", "not installed", package.fix
    try:
        version = importlib.metadata.version(package.name)
    except importlib.metadata.PackageNotFoundError:
        return "note", "importable, but its version is unknown", package.fix
    if package.least and version_numbers(version) < version_numbers(package.least):
        return "missing", f"{version} is older than {package.least}", package.fix
    if package.below and version_numbers(version) >= version_numbers(package.below):
        return "missing", f"{version} is not below {package.below}", package.fix
    if package.import_it:
        try:
            importlib.import_module(package.module or package.name)
        except Exception as error:
            detail = f"{version} is installed but cannot be imported: {told(error)}"
            return "missing", detail, package.reinstall
    return "ok", version


def version_numbers(version: str) -> tuple[int, ...]:
    """The release part of a version as numbers, so that 2.9 sorts below 2.11; '2.13.0+cpu' is (2, 13, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


# ---- the machine --------------------------------------------------------------------------------------------------


def has_driver() -> bool:
    return shutil.which("nvidia-smi") is not None


def check_gpu() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return "note", "cannot be seen without torch"
    import torch

    if torch.cuda.is_available():
        cards = []
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            cards.append(f"{properties.name} ({size(properties.total_memory)})")
        return "ok", ", ".join(cards)
    if not has_driver():
        return "note", "no NVIDIA driver here; small models run on the CPU"
    if torch.version.cuda is None:
        fix = next(package.reinstall for package in PACKAGES if package.name == "torch")
        return "note", f"there is a driver, but torch {torch.__version__} has no CUDA", fix
    return "note", "there is a driver, but torch sees no GPU", "nvidia-smi"


def check_memory() -> Finding:
    available = available_memory()
    if available is None:
        return "note", "this system does not say how much is free"
    if available < MEMORY_WANTED:
        detail = f"{size(available)} free, {size(MEMORY_WANTED)} wanted"
        return "note", detail, "close other programs"
    return "ok", f"{size(available)} free"


def available_memory() -> int | None:
    """Bytes that can be had without swapping, or None where the system has no such figure."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def check_disk() -> Finding:
    folder = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < DISK_WANTED:
        detail = f"{size(free)} free at {folder}; a 12B model takes {size(DISK_WANTED)}"
        return "note", detail, "export HF_HOME=/a/folder/with/more/room"
    return "ok", f"{size(free)} free at {folder}"


def check_chromium() -> Finding:
    path, detail = find_chromium()
    if path is not None:
        return "ok", str(path)
    fix = "python -m playwright install --with-deps chromium"
    if importlib.util.find_spec("playwright") is None:
        fix = f"python -m pip install playwright && {fix}"
    return "missing", detail, fix


def check_window() -> Finding:
    """The headless shell, which most machines have, has no window."""
    path, _ = find_chromium(window=True)
    if path is None:
        return "note", "no full Chromium here; the headless shell has no window", WINDOW_FIX
    if not has_screen():
        return "note", f"{path}, but there is no screen: neither $DISPLAY nor $WAYLAND_DISPLAY is set"
    return "ok", str(path)


def check_fonts() -> Finding:
    names = " ".join(installed_fonts()).lower()
    found = [family for family in FONT_FAMILIES if family.lower() in names]
    if found:
        return "ok", ", ".join(found)
    fix = "sudo apt-get install -y fonts-liberation fonts-dejavu-core"
    return "missing", f"none of {', '.join(FONT_FAMILIES)}", fix


def installed_fonts() -> list[str]:
    """Font families as fontconfig lists them, or the names of font files where there is no fontconfig."""
    if lister := shutil.which("fc-list"):
        listed = subprocess.run([lister, ":", "family"], capture_output=True, text=True, timeout=20, check=True)
        return listed.stdout.splitlines()
    folders = (Path(folder).expanduser() for folder in FONT_FOLDERS)
    return [path.name for folder in folders if folder.is_dir() for path in folder.rglob("*.[ot]tf")]
