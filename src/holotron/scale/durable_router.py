"""A router whose journal is on disk: started again on the same folder, it has the sessions and weights that it had."""

from __future__ import annotations

import asyncio
from typing import Any

from holotron.scale.directory import Place, Replica
from holotron.scale.disk_journal import DiskJournal
from holotron.scale.journal import JournalEntry, KeptImage
from holotron.scale.router import NewClient, ReplicaRouter
from holotron.server import messages as m
from holotron.server.weight_history import WeightUpdate


class DurableRouter(ReplicaRouter):
    """Its sessions begin in the journal alone, and are rebuilt when they are used."""

    def __init__(self, start: m.Start, count: int, new_client: NewClient, disk: DiskJournal) -> None:
        super().__init__(start, count, new_client)
        self._disk = disk
        for entry in disk.load():
            self.directory.put(Place(entry), None)
        if (served := disk.served) is not None:
            self.weights.restore(served["weights"])
            self.versions |= {int(epoch): version for epoch, version in served["versions"].items()}
            self._epoch = served["epoch"]
            self.adapters |= served["adapters"]

    async def close(self) -> None:
        await super().close()
        self._disk.close()

    # ---- sessions ----

    def kept_sessions(self) -> list[JournalEntry]:
        return [place.entry for place in self.directory.places.values()]

    def remember(self, session_id: str, about: dict[str, Any]) -> None:
        if (place := self.directory.places.get(session_id)) is not None:
            place.entry.about = about
            self._disk.write(place.entry)

    async def keep_image(self, data: bytes) -> KeptImage:
        return await asyncio.to_thread(self._disk.keep, data)

    def note_turn(self, place: Place) -> None:
        super().note_turn(place)
        if place.entry.id in self.directory.places:  # not closed meanwhile
            self._disk.add(place.entry)

    def forget(self, session_id: str) -> None:
        super().forget(session_id)
        self._disk.remove(session_id)

    def _journal(
        self, method: str, place: Place, replica: Replica, result: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        super()._journal(method, place, replica, result, args, options)
        if method == "rollback":
            self._disk.write(place.entry)

    # ---- what is served ----

    def _took(self, update: WeightUpdate, whole: bool) -> int:
        epoch = super()._took(update, whole)
        self._note_served()
        return epoch

    async def set_adapter(self, name: str, folder: str | None, version: str | None = None) -> None:
        await super().set_adapter(name, folder, version)
        self._note_served()

    def _note_served(self) -> None:
        told = {"weights": self.weights.saved(), "versions": self.versions, "adapters": self.adapters}
        self._disk.served = told | {"epoch": self._epoch}
