"""Labels that wait for a person: a page on which they are accepted, corrected or rejected with the keyboard."""

from __future__ import annotations

import re
import socket

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import Response

from holotron.episodes.errors import Damaged, EpisodeError
from holotron.episodes.labels import Decision, Label, LabelFolder
from holotron.episodes.reading import decode
from holotron.web.app import page_app, serve_app
from holotron.web.detail import compact_json
from holotron.web.routes import JSON, data_response

FILES = ("review.js", "review.css", "dom.js", "viewer.css", "icon.svg")
_IMAGE = re.compile(r"[0-9a-f]{64}\.png")
LARGEST = 65_536  # bytes of a decision


def create_review(folder: LabelFolder) -> FastAPI:
    """An application over one folder of labels."""
    app = page_app("Holotron labels", "review.html", FILES)

    @app.get("/api/labels")
    def labels() -> Response:
        """What waits for a decision or has one, and how many labels there are in each state."""
        found = folder.read()
        decided = {each.label for each in folder.decisions()}
        shown = [label.model_dump(mode="json") for label in found if label.state == "review" or label.id in decided]
        counts = {state: sum(label.state == state for label in found) for state in ("accepted", "review", "rejected")}
        return data_response(compact_json({"labels": shown, "counts": counts}).encode(), JSON)

    @app.get("/api/images/{name}")
    def image(name: str) -> Response:
        if not _IMAGE.fullmatch(name):
            raise HTTPException(404, "an image is named by 64 hexadecimal digits and .png")
        try:
            return data_response(folder.images.get(name.removesuffix(".png")), "image/png")
        except Damaged as error:
            raise HTTPException(404, "it is missing or damaged") from error

    @app.post("/api/decisions")
    async def decide(request: Request) -> Response:
        """Keep a decision. Other sites' pages cannot send JSON here: their browser would have to ask first."""
        if request.headers.get("content-type", "").partition(";")[0] != JSON:
            raise HTTPException(415, f"a decision is {JSON}")
        body = await request.body()
        if len(body) > LARGEST:
            raise HTTPException(413, f"a decision has at most {LARGEST} bytes")
        try:
            label: Label = folder.decide(decode(Decision, body, "the decision"))
        except EpisodeError as error:
            raise HTTPException(422, str(error)) from error
        return data_response(compact_json(label.model_dump(mode="json")).encode(), JSON)

    return app


def serve_review(folder: LabelFolder, listener: socket.socket) -> None:
    """Serve until Ctrl-C."""
    serve_app(create_review(folder), listener)
