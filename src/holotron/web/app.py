"""The viewer as a server of its own, for the person at this machine."""

from __future__ import annotations

import socket
from collections.abc import Collection
from contextlib import suppress

import uvicorn
from fastapi import FastAPI, HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holotron.web.catalog import Catalog
from holotron.web.page import ICON, INDEX, MEDIA_TYPES, PAGE_POLICY, SCRIPTS, STATIC, STYLE
from holotron.web.routes import SAFE, router

LOOPBACK = "127.0.0.1"
OWN_NAMES = frozenset({LOOPBACK, "localhost"})


class OwnNameOnly:
    """Answers only if asked by the machine's own name.

    Any site can let its name lead to 127.0.0.1, and its pages could then read what is served here as their own. Such
    requests still carry that name.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or hosts[0].partition(":")[0].lower() not in OWN_NAMES:
                if scope["type"] == "http":
                    refusal = PlainTextResponse(f"ask for http://{LOOPBACK} or http://localhost", 421, headers=SAFE)
                    await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)


def page_app(title: str, page: str, files: Collection[str]) -> FastAPI:
    """An application of one page, the files that it asks for, and the routes that are added to it.

    The page asks relative to its own address, so that the application may be mounted anywhere.
    """
    app = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(OwnNameOnly)
    headers = {**SAFE, "Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache"}

    def file(name: str) -> Response:
        path = STATIC / name
        return Response(path.read_bytes(), media_type=MEDIA_TYPES[path.suffix], headers=headers)

    @app.get("/")
    def index() -> Response:
        return file(page)

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "no such file")
        return file(name)

    return app


def create_app(catalog: Catalog) -> FastAPI:
    """An application that shows one store."""
    app = page_app("Holotron episodes", INDEX, (STYLE, ICON, *SCRIPTS))
    app.include_router(router(catalog))
    return app


def listen(port: int) -> socket.socket:
    """A socket on the loopback address that has connections wait; port 0 is any free one."""
    return socket.create_server((LOOPBACK, port), backlog=128)


def address_of(listener: socket.socket) -> str:
    return f"http://{LOOPBACK}:{listener.getsockname()[1]}/"


def make_server(app: FastAPI) -> uvicorn.Server:
    """A server that is not running yet."""
    return uvicorn.Server(
        uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
    )


def serve_app(app: FastAPI, listener: socket.socket) -> None:
    """Serve until Ctrl-C."""
    with suppress(KeyboardInterrupt), listener:
        make_server(app).run(sockets=[listener])


def serve(catalog: Catalog, listener: socket.socket) -> None:
    serve_app(create_app(catalog), listener)
