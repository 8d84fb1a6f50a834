"""Where an engine's process takes sessions that other engines send it, and from where it sends its own."""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import threading

from holotron.engine.engine import Engine
from holotron.engine.errors import EngineError
from holotron.engine.socket_transfer import SECONDS, MoveFailed, receive_over, send_over

log = logging.getLogger(__name__)

TICKET_BYTES = 32


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
        try:
            with socket.create_connection((host, port), SECONDS) as end:
                end.sendall(ticket)
                return send_over(end, self._engine, session_id)
        except OSError as error:
            raise MoveFailed(f"{host} cannot be reached for the session {session_id!r}: {error}") from error

    def _take(self, listener: socket.socket, ticket: bytes) -> None:
        try:
            with listener:
                end, _ = listener.accept()
            with end:
                end.settimeout(SECONDS)
                shown = bytearray()
                while len(shown) < TICKET_BYTES and (more := end.recv(TICKET_BYTES - len(shown))):
                    shown += more
                if hmac.compare_digest(shown, ticket):
                    receive_over(end, self._engine)
        except (EngineError, OSError) as error:
            log.warning("a session was not taken: %s", error)
