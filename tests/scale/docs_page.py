"""`make test-docs`: every command of docs/scale.md, in order, on a cluster whose machines are processes here.

What lasts (servers, Ray, the page) stays until the page's next such command takes its place, and is then ended with
Ctrl-C. `ray up` finds its machines through a shell of this one in place of SSH; each has an address of loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from examples.pages import site

from tests import docs_run
from tests.eval.killed import circumstances
from tests.train.rl.samples import write_run

PAGE = "docs/scale.md"
FIRST = "127.0.0.2"  # plays the part of 10.0.0.1, and so on
PATIENCE = 300.0
YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
# What `ray up` runs on other machines comes here as one argument after options and the address.
SSH = """#!/bin/sh
while [ "$1" != "${1#-}" ]; do case "$1" in -[iopLW]) shift 2;; *) shift;; esac; done
host=${1#*@}; shift
export DOCS_MACHINE=$host
exec %s -c 'import os, shlex, sys
words = shlex.split(" ".join(sys.argv[1:]))
script = words[-1] if words[:1] == ["bash"] else " ".join(sys.argv[1:])
os.execvp("bash", ["bash", "-c", script])' "$@"
"""
RSYNC = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
mkdir -p "$(dirname "${2#*:}")"; eval cp -r "${1#*@*:}" "${2#*:}"
"""
# One machine's `ray stop` must not stop the others, nor what others run here.
RAY = """#!/bin/sh
[ "$1" = stop ] && exec %s -m tests.scale.docs_page --stop "$DOCS_MACHINE"
if [ "$1" = start ] && [ -n "$DOCS_MACHINE" ]; then set -- "$@" --node-ip-address "$DOCS_MACHINE"; fi
# Machines that share cores start one after another: Ray waits only so long for what belongs to one.
[ "$1" = start ] && [ "$2" != --head ] && [ "${RAY_NODE_TYPE_NAME:-}" ] && exec flock -o "$RAY_TMPDIR/starting" %s "$@"
exec %s "$@"
"""


class Run:
    """A page's commands, one after another, in one folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder / "here"
        self._ports = {"8000": _free_port(), "6379": _free_port(), "cluster": _free_port()}
        self._environment = docs_run._environment(folder) | {
            "ADMIN_KEY": "admin",
            "RAY_TMPDIR": str(folder / "ray"),
            "HOME": str(folder),
            "PYTHONPATH": os.pathsep.join([str(docs_run.ROOT / "src"), str(docs_run.ROOT)]),
        }
        (folder / "ray").mkdir()
        ray = shutil.which("ray") or str(Path(sys.executable).with_name("ray"))
        for name, text in {
            "ssh": SSH % sys.executable,
            "rsync": RSYNC,
            "ray": RAY % (sys.executable, ray, ray),
        }.items():
            program = folder / "bin" / name
            program.write_text(text)
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        docs_run._scratch(self._folder, {"https://example.com": stack.enter_context(site())})
        write_run(self._folder / "tiny", steps=2)
        (self._folder / "keys.txt").write_text("a-key\n")
        [text] = YAML.findall((docs_run.ROOT / PAGE).read_text(encoding="utf-8"))
        for given, fewer in ((", 10.0.0.3", ""), ("10.0.0.4, 10.0.0.5", "10.0.0.3"), ("count: 2", "count: 1")):
            text = text.replace(given, fewer)  # two cores are enough for three machines
        more = f"port: {self._ports['cluster']}\ninstall: holotron --version\n"
        (self._folder / "cluster.yaml").write_text(self._here(text) + more)
        self._lasting: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
        self._before: list[str] = []  # exports, which later commands see

    def _here(self, text: str) -> str:
        """With what the page names as it is here."""
        for shown, port in self._ports.items():
            text = re.sub(rf"(?<=:){shown}\b", str(port), text)
        return re.sub(r"\b10\.0\.0\.(\d+)", lambda found: f"127.0.0.{int(found[1]) + 1}", text)

    def take(self, one: docs_run.Shown) -> dict[str, Any]:
        began = time.monotonic()
        said, code = "", 0
        command = self._here(one.ran)
        print(f"{one.place}: {command}", file=sys.stderr, flush=True)
        try:
            if command.startswith("export "):
                self._before.append(command)
            elif kind := _lasting(command):
                self._begin(kind, command)
            else:
                if command == "holotron up cluster.yaml":
                    self.end()  # those of the first cluster
                code, said = self._whole(command)
                if command == "holotron up cluster.yaml" and code == 0:
                    self._wait_for_machines(3)
        except Exception as error:
            code, said = -1, f"{type(error).__name__}: {error}"
        ok = code == 0 and "Traceback" not in said
        result = {"at": one.place, "command": one.command, "ok": ok, "seconds": round(time.monotonic() - began, 1)}
        result |= {"ran": one.ran} if one.ran != one.command else {}
        if not ok:
            result |= {"exit": code, "said": said[-2000:]}
            print(said[-4000:], file=sys.stderr, flush=True)
        return result

    def _whole(self, command: str) -> tuple[int, str]:
        words = [
            "bash",
            "-c",
            "\n".join([*self._before, command.replace("curl ", "curl -sS --fail --noproxy '*' ", 1)]),
        ]
        done = subprocess.run(
            words, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def _wait_for_machines(self, count: int) -> None:
        """Workers are started by the head, after `ray up` has ended."""
        deadline = time.monotonic() + PATIENCE
        while True:
            code, said = self._whole(f"holotron status --ray {FIRST}:{self._ports['cluster']} --json 2> /dev/null")
            up = [each["address"] for each in json.loads(said)["machines"] if each["alive"]] if code == 0 else []
            if len(set(up)) == count:
                return
            assert time.monotonic() < deadline, f"{up}: {said[-2000:]}"
            time.sleep(2)

    def _begin(self, kind: str, command: str) -> None:
        self._end(kind)
        if kind == "serve":
            command += f" --port {self._ports['8000']}"
        if kind == "head":  # `holotron up` says nothing of an address: a machine has one
            self._environment["DOCS_MACHINE"] = FIRST
            (self._folder / "head.yaml").write_text(f"port: {self._ports['6379']}\n")
            command += " head.yaml"
        if kind == "machine":
            self._environment["DOCS_MACHINE"] = "127.0.0.3"
        log = self._folder / f"{kind}.log"
        with log.open("wb") as out:
            words = ["bash", "-c", f"exec {command}"]
            process = subprocess.Popen(words, cwd=self._folder, env=self._environment, stdout=out, stderr=out)
        self._environment.pop("DOCS_MACHINE", None)
        self._lasting[kind] = process, log
        ready: dict[str, Callable[[str], object]] = {
            "serve": lambda _: _answers(f"http://127.0.0.1:{self._ports['8000']}/health"),
            "page": lambda said: (found := re.search(r"http://\S+", said)) and _answers(f"{found[0]}api/status"),
        }
        deadline = time.monotonic() + PATIENCE
        while not ready.get(kind, lambda said: "Ray runtime started" in said)(log.read_text(errors="replace")):
            said = log.read_text(errors="replace")[-3000:]
            assert process.poll() is None, f"ended with {process.returncode}: {said}"
            assert time.monotonic() < deadline, f"was not ready: {said}"
            time.sleep(0.2)

    def end(self) -> None:
        """End what lasts, the last first."""
        for kind in reversed(list(self._lasting)):
            self._end(kind)

    def _end(self, kind: str) -> None:
        process, log = self._lasting.pop(kind, (None, None))
        if process is None or log is None:
            return
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE)
        assert code in (0, 1, 130), (kind, code, log.read_text(errors="replace")[-2000:])


def _lasting(command: str) -> str:
    """What kind of thing a command begins that stays; none if it ends by itself."""
    if command.startswith("holotron serve"):
        return "serve"
    if "--page" in command:
        return "page"
    return {"holotron up": "head"}.get(command, "machine" if command.startswith("ray start") else "")


def _answers(url: str) -> bool:
    with suppress(OSError):
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5).close()
        return True
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


def stop(machine: str) -> None:
    """What `ray stop` does, of one machine of this run: its processes know its folder and its address."""
    folder = os.environ["RAY_TMPDIR"].encode()
    for process in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid, environment = int(process.name), (process / "environ").read_bytes().split(b"\0")
            program = (process / "cmdline").read_bytes()
            if b"RAY_TMPDIR=" + folder not in environment or b"docs_page" in program or pid == os.getppid():
                continue
            of_it = not machine or b"DOCS_MACHINE=" + machine.encode() in environment
            if of_it and re.search(rb"/ray/|ray::", program):
                os.kill(pid, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.scale.docs_page", description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--stop", help="of the program `ray`, as `ray up` finds it")
    parser.add_argument("--only", default="", help="commands that contain this, and what lasts")
    given = parser.parse_args()
    if given.stop is not None:
        stop(given.stop)
        return
    done = []
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="hd", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        run = Run(Path(name), stack)
        os.environ["RAY_TMPDIR"] = str(Path(name) / "ray")
        stack.callback(stop, "")
        stack.callback(run.end)
        for one in docs_run.shown([PAGE]):
            assert not one.skipped
            if given.only in one.command or _lasting(one.ran):
                done.append(run.take(one))
    report = circumstances("python -m tests.scale.docs_page") | {
        "instead": "machines are processes with addresses of loopback; ssh and rsync are a shell and cp here",
        "ran": len(done),
        "failed": sum(not one["ok"] for one in done),
        "commands": done,
    }
    text = json.dumps(report, indent=1) + "\n"
    print(text)
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")
    sys.exit(bool(report["failed"]))


if __name__ == "__main__":
    main()
