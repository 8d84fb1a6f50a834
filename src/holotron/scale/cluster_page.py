"""`holotron status --page`: a cluster on a page that follows it, for the person at this machine."""

from __future__ import annotations

import socket

from fastapi import FastAPI
from fastapi.responses import Response

from holotron.scale.watch import ClusterWatch
from holotron.web.app import page_app, serve_app
from holotron.web.detail import compact_json
from holotron.web.routes import JSON, data_response

FILES = ("cluster.js", "cluster.css", "dom.js", "format.js", "viewer.css", "icon.svg")


def create_cluster_page(watch: ClusterWatch) -> FastAPI:
    """The page and what it asks for, which is status alone: the admin key stays in this process."""
    app = page_app("Holotron cluster", "cluster.html", FILES)

    @app.get("/api/status")
    def status() -> Response:
        return data_response(compact_json(watch.told()).encode(), JSON)

    return app


def serve_cluster(watch: ClusterWatch, listener: socket.socket) -> None:
    """Serve until Ctrl-C."""
    with watch.running():
        serve_app(create_cluster_page(watch), listener)
