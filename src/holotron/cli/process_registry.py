"""What runs on this machine, so that `holotron stop` can end it."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import Annotated

import typer

from holotron.cli.output import examples

EXAMPLES = examples("holotron stop", "holotron stop --now")
PATIENCE = 15.0


def _folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"holotron-{os.getuid()}"


def _own(path: Path, of_kind: Callable[[int], bool]) -> bool:
    """Whether something is there that is this user's, of the right kind, and that nobody else may change.

    The folder may lie where every user writes, and what it says decides which processes are ended.
    """
    try:
        found = path.lstat()
    except OSError:
        return False
    return of_kind(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


@contextmanager
def registered(what: str, goes_on: bool = False) -> Iterator[None]:
    """While inside, this process can be found and stopped. SIGTERM ends it as Ctrl-C does: cleanly.

    goes_on: started again, the same command skips what was finished, and whoever stops it is told.
    """
    path = _folder() / f"{os.getpid()}.json"
    with suppress(OSError):  # without it there is only Ctrl-C
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _own(path.parent, stat.S_ISDIR):
            path.write_text(json.dumps({"pid": os.getpid(), "what": what, "began": _began(os.getpid())}))
            path.chmod(0o600)
    # A shell lets what it starts in the background ignore interrupts, and `stop` must reach that, too.
    interrupted = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    try:
        yield
    except KeyboardInterrupt:
        print("stopped" + "; the same command goes on from there" * goes_on, file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, interrupted)
        with suppress(OSError):
            path.unlink(missing_ok=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, Ctrl-C ends what does not await, such as the loading of a model.

    An event loop keeps interrupts for its next turn, which would be when the model is there.
    """
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _began(pid: int) -> str:
    """When a process was started: its number may have been given to another since."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return ""
    return "" if fields[0] == "Z" else fields[19]  # a zombie has ended; its parent has not asked after it


def _is_ours(pid: int) -> bool:
    """Whether a process is this user's and runs `holotron`."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return Path(f"/proc/{pid}").stat().st_uid == os.getuid() and any(b"holotron" in word for word in words[:4])
    except OSError:
        return False


def stop(
    now: Annotated[bool, typer.Option("--now", help="Kill what has not ended by itself after 15 seconds.")] = False,
) -> None:
    """End every run, rollout and evaluation of yours on this machine, cleanly: browsers too, nothing half-written."""
    found = []
    folder = _folder()
    if folder.exists() and not _own(folder, stat.S_ISDIR):
        raise OSError(f"{folder} is not yours alone, so nothing it says is believed; end what runs with Ctrl-C")
    for path in folder.glob("*.json"):
        try:
            if not _own(path, stat.S_ISREG):
                continue
            entry = json.loads(path.read_text())
            pid, what = int(entry["pid"]), str(entry["what"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if _began(pid) == entry.get("began") and _began(pid) and _is_ours(pid):
            found.append((pid, what))
            os.kill(pid, signal.SIGINT)
        else:
            path.unlink(missing_ok=True)
    deadline = time.monotonic() + PATIENCE
    while (left := [pid for pid, _ in found if _began(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left if now else ():
        os.kill(pid, signal.SIGKILL)
    for pid, what in found:
        typer.echo(f"{what} {pid}: {'killed' if pid in left and now else 'still ending' if pid in left else 'ended'}")
    if not found:
        typer.echo("nothing is running")
