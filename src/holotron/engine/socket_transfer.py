"""Sessions over sockets between two engines: one that they speak over, and lanes that carry the bytes side by side.

The sender says what it has, with how many lanes it comes; the receiver says that it takes that, or why not. The bytes
go in pieces, each over the next lane that is free, with its number and a checksum. In the end the receiver says that it
has the session. A checksum finds what memory and networks do to bytes, at 4 GB/s of a core; who may send is not its
business but the ticket's (server/session_port.py).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from zlib import crc32

from holotron.engine.engine import Engine
from holotron.engine.errors import EngineError
from holotron.engine.migration import SessionDamaged

SECONDS = 60.0  # without a byte after which the other end is given up
TAKEN = b"taken\n"
WANTED = b"go on\n"
MOST_WORDS = 4096
MOST_HEAD = 2**24
PIECE = 4 * 2**20
MOST_LANES = 8

_BEGINNING = struct.Struct("<8sBII")  # what it is, lanes, the length of the head, its checksum
_NUMBERED = struct.Struct("<II")  # a piece's number and checksum
_MAGIC = b"holosess"

Connection = Callable[[], socket.socket]  # makes, or takes, another one with the same other end


class MoveFailed(EngineError):
    """The other engine did not take the session, which stays where it was."""


def send_over(connect: Connection, engine: Engine, session_id: str) -> int:
    """Have a session leave; how many bytes that were. MoveFailed: it is still here."""
    sent = 0

    def send(head: bytes, parts: Sequence[memoryview]) -> None:
        nonlocal sent
        pieces = list(pieces_of(parts))
        numbers = iter(range(len(pieces)))
        count = min(len(pieces), MOST_LANES, os.cpu_count() or 1)

        def carry(lane: socket.socket) -> None:
            for number in numbers:
                lane.sendall(_NUMBERED.pack(number, _checksum(pieces[number])))
                for view in pieces[number]:
                    lane.sendall(view)
            lane.shutdown(socket.SHUT_WR)

        control.sendall(_BEGINNING.pack(_MAGIC, count, len(head), crc32(head)) + head)
        _hear(control, WANTED, session_id)
        with ExitStack() as stack:
            try:
                _side_by_side([_patient(stack.enter_context(connect())) for _ in range(count)], carry)
            except OSError:
                _hear(control, TAKEN, session_id)  # it may have said why it went
                raise
            _hear(control, TAKEN, session_id)
        sent = len(head) + sum(map(len, parts))

    try:
        with _patient(connect()) as control:
            engine.send_session(session_id, send)
    except OSError as error:
        raise MoveFailed(f"the session {session_id!r} did not get through: {error}") from error
    return sent


def receive_over(accept: Connection, engine: Engine) -> str:
    """Take the session that comes; its id."""
    with _patient(accept()) as control:
        try:
            head, count = _read_beginning(control)

            def fill(parts: Sequence[memoryview]) -> None:
                control.sendall(WANTED)
                with ExitStack() as stack:
                    take_pieces([_patient(stack.enter_context(accept())) for _ in range(count)], parts)

            session = engine.receive_session(head, fill)
        except EngineError as error:
            with suppress(OSError):
                control.sendall(str(error).encode()[:MOST_WORDS])
            raise
        control.sendall(TAKEN)
    return session.id


def take_pieces(lanes: Sequence[socket.socket], parts: Sequence[memoryview]) -> None:
    """Fill buffers with what comes over the lanes, which all end when one fails."""
    missing = dict(enumerate(pieces_of(parts)))

    def take(lane: socket.socket) -> None:
        numbered = bytearray(_NUMBERED.size)
        while _fill(lane, memoryview(numbered)):
            number, checksum = _NUMBERED.unpack(numbered)
            piece = missing.pop(number, None)
            if piece is None:
                raise SessionDamaged(f"there is no piece {number} of this session, or it came twice; it is not taken")
            if not all(_fill(lane, view) for view in piece):
                raise MoveFailed("the other end was gone before the session was here")
            if _checksum(piece) != checksum:
                raise SessionDamaged(f"piece {number} of a session was altered on its way; it is not taken")

    _side_by_side(lanes, take)
    if missing:
        raise MoveFailed("the other end was gone before the session was here")


def pieces_of(parts: Sequence[memoryview]) -> Iterator[list[memoryview]]:
    """The same bytes in pieces of PIECE, the last one shorter, however they are cut."""
    piece: list[memoryview] = []
    room = PIECE
    for part in parts:
        while len(part) >= room:
            yield [*piece, part[:room]]
            part, piece, room = part[room:], [], PIECE
        if len(part):
            piece.append(part)
            room -= len(part)
    if piece:
        yield piece


def _side_by_side(lanes: Sequence[socket.socket], work: Callable[[socket.socket], None]) -> None:
    """Work on all lanes at once, each in a thread. When this returns, none touches a buffer any more."""
    failures: list[BaseException] = []

    def run(lane: socket.socket) -> None:
        try:
            work(lane)
        except BaseException as error:
            failures.append(error)
            for each in lanes:  # the others wait for nothing that will not come
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    with ThreadPoolExecutor(max(1, len(lanes)), "session-lane") as threads:
        list(threads.map(run, lanes))
    if failures:
        raise failures[0]


def _checksum(piece: Sequence[memoryview]) -> int:
    value = 0
    for view in piece:
        value = crc32(view, value)
    return value


def _patient(end: socket.socket) -> socket.socket:
    """The system waits, and not Python: a piece is one call, without the interpreter's lock."""
    end.settimeout(None)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        end.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(SECONDS), int(SECONDS % 1 * 1e6)))
    return end


def _fill(end: socket.socket, into: memoryview) -> bool:
    """Fill a buffer with the next bytes; False if the other end ended before the first. MoveFailed: in the middle."""
    left = into
    while left:
        count = end.recv_into(left, len(left), socket.MSG_WAITALL)
        if not count and len(left) == len(into):
            return False
        if not count:
            raise MoveFailed("the other end was gone before the session was here")
        left = left[count:]
    return True


def _read_beginning(control: socket.socket) -> tuple[bytes, int]:
    beginning = bytearray(_BEGINNING.size)
    if not _fill(control, memoryview(beginning)):
        raise MoveFailed("the other end left without a word")
    magic, lanes, length, checksum = _BEGINNING.unpack(beginning)
    if magic != _MAGIC or length > MOST_HEAD or lanes > MOST_LANES:
        raise SessionDamaged("these are not the bytes of a session")
    head = bytearray(length)
    if not _fill(control, memoryview(head)) or crc32(head) != checksum:
        raise SessionDamaged("the head of a session was altered on its way; it is not taken")
    return bytes(head), lanes


def _hear(control: socket.socket, wanted: bytes, session_id: str) -> None:
    """Wait for these words and read no further; MoveFailed with what is said in their place."""
    words = bytearray()
    while wanted.startswith(words) and words != wanted and (more := control.recv(len(wanted) - len(words))):
        words += more
    if words != wanted:
        while len(words) < MOST_WORDS and (more := control.recv(MOST_WORDS)):
            words += more
        said = words.decode(errors="replace").strip() or "the other end is gone"
        raise MoveFailed(f"the session {session_id!r} was not taken: {said}")
