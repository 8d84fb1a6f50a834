"""A program that runs code of others: the server of an application, or one of its verifiers. Standard library only.

`confined.py PARENT MEGABYTES serve PORT` runs the server.py of the current folder. `confined.py PARENT MEGABYTES verify
FILE ADDRESS` prints what a verifier found, as JSON. Both have only so much memory and end with their parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def confine(parent: int, megabytes: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it could be bound to
        sys.exit("the parent is gone")
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def serve(port: str) -> None:
    sys.argv = ["server.py", "--port", port]
    sys.path.insert(0, os.getcwd())  # it may import its neighbours
    runpy.run_path("server.py", run_name="__main__")


def verify(file: str, address: str) -> dict[str, object]:
    """passed and message; or raised: what the verifier raised; or broken: why nothing can be said about the task."""
    try:
        check = runpy.run_path(file, run_name="verifier")["verify"]
    except BaseException as error:
        return {"broken": f"it cannot be loaded: {_told(error)}"}
    try:
        found = check(address)
    except OSError as error:  # and so are all errors of `requests`: the server does not answer
        return {"broken": _told(error)}
    except BaseException as error:
        return {"raised": _told(error)}
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], bool):
        return {"broken": f"it returned {found!r:.200} instead of (True or False, message)"}
    return {"passed": found[0], "message": str(found[1])[:2000]}


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:1000]


def main() -> None:
    parent, megabytes, what, *rest = sys.argv[1:]
    confine(int(parent), int(megabytes))
    if what == "serve":
        serve(*rest)
        return
    answers = os.dup(1)
    for stream in (1, 2):  # what a verifier prints is not its finding
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    os.write(answers, json.dumps(verify(*rest)).encode())
    os._exit(0)  # not even its threads delay it


if __name__ == "__main__":
    main()
