"""Both ends of a connection show that they know a key, before either reads what the other says.

What is said then are pickles. It is neither hidden nor signed: the network is trusted as Ray trusts it.
"""

from __future__ import annotations

import hmac
import secrets
import socket

NONCE = 32
HANDSHAKE_SECONDS = 20.0
# A machine that is gone without a word is given up after this many seconds.
KEEP_ALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}


def prove(end: socket.socket, key: bytes, *, front: bool) -> None:
    """Have both ends show that they know the key, before anything else is read. ValueError: the other does not."""
    end.settimeout(HANDSHAKE_SECONDS)
    ours = secrets.token_bytes(NONCE)
    end.sendall(ours)
    theirs = _exactly(end, NONCE)
    end.sendall(_proof(key, front, ours, theirs))
    if not hmac.compare_digest(_exactly(end, NONCE), _proof(key, not front, theirs, ours)):
        raise ValueError("the other end does not know the key of this server")
    end.settimeout(None)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):  # not on every system
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _proof(key: bytes, front: bool, own: bytes, other: bytes) -> bytes:
    return hmac.digest(key, b"front" * front + own + other, "sha256")


def _exactly(end: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = end.recv(count - len(data))
        if not more:
            raise ValueError("the other end left before it had shown that it knows the key")
        data += more
    return bytes(data)


def connect(host: str, port: int, key: bytes) -> socket.socket:
    """A connection to one that listens there and knows the key."""
    end = socket.create_connection((host, port), HANDSHAKE_SECONDS)
    try:
        prove(end, key, front=True)
    except BaseException:
        end.close()
        raise
    return end
