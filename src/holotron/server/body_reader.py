"""From the bytes of a body to a request. Bodies that take long are read in a process of their own:

`python -m holotron.server.body_reader FD` answers over that socket until the other end closes it. Neither parsing nor
validation lets other threads of its process run.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import struct
import sys
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

LENGTH = struct.Struct("<Q")
MAX_OBJECTS = 500_000
MAX_OPTIONS = 2**20  # letters of JSON beside messages, prompts and tokens
MAX_PROBLEMS = 1000
NICENESS = 10  # who sends such a body waits for it, and not the streams of others
LONG_FIELDS = {"messages", "prompt", "tokens"}

Problems = list[dict[str, Any]]


def read(kind: Any, content: bytes) -> tuple[Any, Problems]:
    """A request of that type, or what is wrong with it, as pydantic tells it."""
    if content.count(b"{") > MAX_OBJECTS:
        return None, [_problem(f"the body has more than {MAX_OBJECTS:,} objects")]
    try:
        value = json.loads(content)
    except json.JSONDecodeError as error:
        return None, [{"type": "json_invalid", "loc": (), "msg": error.msg, "ctx": {"error": error.msg}}]
    except (ValueError, RecursionError) as error:
        return None, [_problem(f"the body cannot be read: {error}")]
    if len(content) > MAX_OPTIONS and (problem := _long_option(value)):
        return None, [problem]
    try:
        return _adapter(kind).validate_python(value), []
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return None, [dict(problem) for problem in found[:MAX_PROBLEMS]]


def _long_option(value: Any) -> dict[str, Any] | None:
    """What comes back from the process must be quick to take in; long texts are, long structures are not."""
    for name, option in value.items() if isinstance(value, dict) else ():
        if name not in LONG_FIELDS and (size := len(json.dumps(option))) > MAX_OPTIONS:
            return _problem(f"{size:,} letters of JSON are more than the {MAX_OPTIONS:,} that are taken", name)
    return None


def _problem(message: str, *path: str) -> dict[str, Any]:
    return {"type": "value_error", "loc": path, "msg": message}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def main() -> None:
    for name in (signal.SIGINT, signal.SIGTERM):  # the HTTP process decides when to end
        signal.signal(name, signal.SIG_IGN)
    os.nice(NICENESS)
    with socket.socket(fileno=int(sys.argv[1])) as end, end.makefile("rwb") as stream:
        while header := stream.read(LENGTH.size):
            (question,) = pickle.loads(stream.read(*LENGTH.unpack(header)))
            answer = pickle.dumps([read(*question)], protocol=pickle.HIGHEST_PROTOCOL)
            stream.write(LENGTH.pack(len(answer)))
            stream.write(answer)
            stream.flush()
            del question, answer


if __name__ == "__main__":
    main()
