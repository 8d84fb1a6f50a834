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
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

LENGTH = struct.Struct("<Q")
MAX_OPTIONS = 2**20  # letters of JSON beside messages, prompts and tokens
MAX_PROBLEMS = 1000
NICENESS = 10  # who sends such a body waits for it, and not the streams of others
LONG_FIELDS = {"messages", "prompt", "tokens", "input", "system", "instructions", "input_ids", "text", "image_data"}

Problems = list[dict[str, Any]]


def read(kind: Any, content: bytes, long: bool = False) -> tuple[Any, Problems]:
    """A request of that type, or what is wrong with it, as pydantic tells it. long: structures have limits, too."""
    try:
        value = json.loads(content)
    except json.JSONDecodeError as error:
        return None, [{"type": "json_invalid", "loc": (), "msg": error.msg, "ctx": {"error": error.msg}}]
    except (ValueError, RecursionError) as error:
        return None, [_problem(f"the body cannot be read: {error}")]
    if long and (problem := _long_option(value)):
        return None, [problem]
    try:
        return _adapter(kind).validate_python(value), []
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return None, [{**problem, "loc": own_place(problem, value)} for problem in found[:MAX_PROBLEMS]]


def own_place(problem: Mapping[str, Any], body: Any) -> tuple[str | int, ...]:
    """The steps to the field that are the client's own: between them are names of the types that were tried.

    What is wrong with several fields together begins with the name of one of them.
    """
    own, value, steps = [], body, problem["loc"]
    if not steps and isinstance(body, Mapping):
        named = str(problem["msg"]).removeprefix("Value error, ").partition(" ")[0]
        return (named,) if named in body else ()
    for number, step in enumerate(steps, 1):
        known = value if isinstance(value, Mapping) else range(len(value)) if isinstance(value, list) else ()
        if step in known:
            value = value[step]
        elif not (number == len(steps) and problem["type"] == "missing"):
            continue
        own.append(step)
    return tuple(own)


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


def send(end: socket.socket, *frames: bytes) -> None:
    for frame in frames:
        end.sendall(LENGTH.pack(len(frame)))
        end.sendall(frame)


def receive(end: socket.socket, count: int) -> list[bytes]:
    """So many frames. ConnectionError where the other end is gone."""
    return [_receive(end, *LENGTH.unpack(_receive(end, LENGTH.size))) for _ in range(count)]


def _receive(end: socket.socket, length: int) -> bytes:
    content = bytearray(length)
    view = memoryview(content)
    while view:
        if not (received := end.recv_into(view)):
            raise ConnectionError("the other end is gone")
        view = view[received:]
    return bytes(content)


def main() -> None:
    for name in (signal.SIGINT, signal.SIGTERM):  # the HTTP process decides when to end
        signal.signal(name, signal.SIG_IGN)
    os.nice(NICENESS)
    with socket.socket(fileno=int(sys.argv[1])) as end, suppress(ConnectionError):
        while True:
            kind, content = receive(end, 2)
            send(end, pickle.dumps(read(pickle.loads(kind), content, long=True), protocol=pickle.HIGHEST_PROTOCOL))
            del content


if __name__ == "__main__":
    main()
