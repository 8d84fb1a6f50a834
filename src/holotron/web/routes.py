"""What the page of episodes asks for, as routes over a store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query
from fastapi.responses import Response

from holotron.episodes.errors import Damaged, EpisodeError
from holotron.web.catalog import Catalog
from holotron.web.detail import compact_json, detail_of, episode_json, steps_of
from holotron.web.page import NOTHING_POLICY

JSON = "application/json"
SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_DIGEST = re.compile(r"[0-9a-f]{64}")
EpisodeId = Annotated[str, Path(max_length=128)]


def router(catalog: Catalog) -> APIRouter:
    """They check neither users nor the Host header: the application that includes them does."""
    routes, store = APIRouter(), catalog.store

    @routes.get("/api/episodes")
    def changes(since: Annotated[str, Query(max_length=64)] = "") -> Response:
        """The episodes that are new or changed since a cursor, and the next cursor."""
        return data_response(catalog.changes(since).encode(), JSON)

    @routes.get("/api/episodes/{episode_id}")
    def episode(episode_id: EpisodeId, first: Annotated[int, Query(ge=0)] = 0) -> Response:
        """One episode with its steps from `first` on, each with its action in words."""
        with _not_found():
            return data_response(compact_json(detail_of(store, episode_id, first)).encode(), JSON)

    @routes.get("/api/episodes/{episode_id}/download")
    def download(episode_id: EpisodeId) -> Response:
        """One episode as a file, exactly as it is stored; if it is damaged, as far as it goes."""
        with _not_found():
            info = store.info(episode_id)
            data = episode_json(info, steps_of(store, info)[0]).encode()
            return data_response(data, JSON, **{"Content-Disposition": f'attachment; filename="{episode_id}.json"'})

    @routes.get("/api/training")
    def training(after: Annotated[int, Query(ge=0)] = 0) -> Response:
        """What the run that the store is of told of its iterations after that one."""
        return data_response(compact_json({"lines": catalog.training.lines(after)}).encode(), JSON)

    @routes.get("/api/images/{name}")
    def image(name: str) -> Response:
        """A screenshot, by the SHA-256 of its bytes and .png."""
        digest = name.removesuffix(".png")
        if not name.endswith(".png") or not _DIGEST.fullmatch(digest):
            raise HTTPException(404, "an image is named by 64 hexadecimal digits and .png")
        with _not_found():
            # What has this name will have the same bytes forever.
            return data_response(
                store.image(digest), "image/png", **{"Cache-Control": "private, max-age=31536000, immutable"}
            )

    return routes


@contextmanager
def _not_found() -> Iterator[None]:
    """Inside, an episode or image that is not there, or not whole, becomes 404."""
    try:
        yield
    except Damaged as error:
        raise HTTPException(404, "it is missing or damaged") from error
    except EpisodeError as error:
        raise HTTPException(404, "there is no such episode") from error


def data_response(data: bytes, kind: str, **headers: str) -> Response:
    return Response(
        data,
        media_type=kind,
        headers={**SAFE, "Content-Security-Policy": NOTHING_POLICY, "Cache-Control": "no-store", **headers},
    )
