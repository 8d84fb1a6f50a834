"""Runs the application until it is told to stop."""

from __future__ import annotations

import logging
import signal

from holotron.server.app import create_app
from holotron.server.engine_client import EngineDown
from holotron.server.http_server import HttpServer
from holotron.server.log_lines import write_logs
from holotron.server.settings import ServerSettings


class LastLine(logging.Filter):
    """A server that cannot start says why, without the traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        if (message := record.getMessage()).startswith("Traceback"):
            record.msg, record.args = message.strip().splitlines()[-1], ()
        return True


def serve(settings: ServerSettings) -> None:
    """Serve until Ctrl-C or SIGTERM. Turns under way then have `grace_seconds` to finish."""
    write_logs(settings.log_format, logging.INFO)
    logging.getLogger("uvicorn.error").addFilter(LastLine())
    for name in ("httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Once it has shut down, uvicorn raises the signal that told it to anew; being told to stop is no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server = HttpServer(create_app(settings), settings)
    server.run()
    if not server.started:
        raise EngineDown("the server could not be started; the lines above say why")
