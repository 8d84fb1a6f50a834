"""What responses told, for clients that read them again. The session of a chain holds what they go on from."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

KEPT_BYTES = 64 * 1024 * 1024


class StoredResponses:
    """Responses as JSON by their ids; the oldest make room."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def add(self, response: dict[str, Any]) -> None:
        self.remove(response["id"])
        told = self._told[response["id"]] = json.dumps(response, ensure_ascii=False).encode("utf-8", "replace")
        self._bytes += len(told)
        while self._bytes > KEPT_BYTES:
            self.remove(next(iter(self._told)))

    def get(self, id_: str) -> bytes | None:
        return self._told.get(id_)

    def remove(self, id_: str) -> None:
        self._bytes -= len(self._told.pop(id_, b""))
