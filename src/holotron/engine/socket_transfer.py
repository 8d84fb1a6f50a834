"""Sessions over a socket between two engines. The receiver says at the end whether it has taken the session."""

from __future__ import annotations

import socket

from holotron.engine.engine import Engine
from holotron.engine.errors import EngineError

SECONDS = 60.0  # without a byte after which the other end is given up
TAKEN = b"taken\n"
MOST_WORDS = 4096
BUFFER = 8 * 2**20  # bytes on their way, that neither end waits for the other


class MoveFailed(EngineError):
    """The other engine did not take the session, which stays where it was."""


def send_over(end: socket.socket, engine: Engine, session_id: str) -> int:
    """Have a session leave through a socket; how many bytes that were. MoveFailed: it is still here."""
    _prepare(end)
    sent = 0

    def write(buffer: memoryview) -> None:
        nonlocal sent
        end.sendall(buffer)
        sent += len(buffer)

    def arrived() -> None:
        words = bytearray()
        while len(words) < MOST_WORDS and (more := end.recv(MOST_WORDS)):
            words += more
            if words == TAKEN:
                return
        said = words.decode(errors="replace").strip() or "the other end is gone"
        raise MoveFailed(f"the session {session_id!r} was not taken: {said}")

    try:
        engine.send_session(session_id, write, arrived)
    except OSError as error:
        raise MoveFailed(f"the session {session_id!r} did not get through: {error}") from error
    return sent


def receive_over(end: socket.socket, engine: Engine) -> str:
    """Take the session that comes over a socket; its id."""
    _prepare(end)

    def read(into: memoryview) -> None:
        while into:
            count = end.recv_into(into)
            if not count:
                raise MoveFailed("the other end was gone before the session was here")
            into = into[count:]

    try:
        session = engine.receive_session(read)
    except EngineError as error:
        end.sendall(str(error).encode()[:MOST_WORDS])
        raise
    end.sendall(TAKEN)
    return session.id


def _prepare(end: socket.socket) -> None:
    end.settimeout(SECONDS)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        end.setsockopt(socket.SOL_SOCKET, option, BUFFER)
