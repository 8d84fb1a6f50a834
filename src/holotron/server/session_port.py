"""Where an engine's process takes sessions that other engines send it, and from where it sends its own."""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import threading
from contextlib import suppress

from holotron.engine.engine import Engine
from holotron.engine.errors import EngineError
from holotron.engine.socket_transfer import SECONDS, receive_over, send_over

log = logging.getLogger(__name__)

TICKET_BYTES = 32
TICKET_SECONDS = 5.0  # in which a connection must have shown it


class SessionPort:
    """One engine's. A port is open for one session, for whoever has the ticket."""

    def __init__(self, engine: Engine, host: str) -> None:
        self._engine = engine
        self._host = host

    def expect(self) -> tuple[int, bytes]:
        """A port that takes a session from now on, and the ticket that its sender must show."""
        listener = socket.create_server((self._host, 0))
        listener.settimeout(SECONDS)
        ticket = secrets.token_bytes(TICKET_BYTES)
        port: int = listener.getsockname()[1]
        threading.Thread(target=self._take, args=(listener, ticket), name="session-port", daemon=True).start()
        return port, ticket

    def send(self, session_id: str, host: str, port: int, ticket: bytes) -> int:
        """Send a session to the engine that expects it; its bytes. EngineError: it is still here."""

        def connect() -> socket.socket:
            end = socket.create_connection((host, port), SECONDS)
            end.sendall(ticket)
            return end

        return send_over(connect, self._engine, session_id)

    def _take(self, listener: socket.socket, ticket: bytes) -> None:
        def accept() -> socket.socket:
            """The next connection that shows the ticket."""
            while True:
                end, _ = listener.accept()
                end.settimeout(TICKET_SECONDS)
                shown = bytearray()
                with suppress(OSError):
                    while len(shown) < TICKET_BYTES and (more := end.recv(TICKET_BYTES - len(shown))):
                        shown += more
                if hmac.compare_digest(shown, ticket):
                    return end
                end.close()

        try:
            with listener:
                receive_over(accept, self._engine)
        except (EngineError, OSError) as error:
            log.warning("a session was not taken: %s", error)
