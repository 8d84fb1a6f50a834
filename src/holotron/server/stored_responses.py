"""What was asked and told in responses, for clients that read it again. A session holds what they go on from."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter

from holotron.server.response_schemas import (
    InputCallOutput,
    InputCustomCall,
    InputImage,
    InputItem,
    InputMessage,
    InputPart,
    InputReasoning,
    InputText,
)

ITEM: TypeAdapter[InputItem] = TypeAdapter(InputItem)
KEPT_BYTES = 128 * 1024 * 1024  # with the images that were sent


@dataclass(frozen=True)
class StoredResponse:
    """A response as JSON, what it was asked, and the responses that it went on from, the first one first."""

    id: str
    told: bytes
    asked: Sequence[InputItem]
    earlier: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.told) + _letters(self.asked)

    @property
    def by_id(self) -> dict[str, InputItem]:
        """What it was asked itself and what it told, in order."""
        told = json.loads(self.told)["output"]
        return dict(self._asked()) | {item["id"]: ITEM.validate_python(item) for item in told}

    def _asked(self) -> Iterator[tuple[str, InputItem]]:
        """The ids are ours, whatever the client's are: from them the response is found."""
        for number, item in enumerate(self.asked):
            yield f"{_prefix(item)}_{self.id.removeprefix('resp_')}_{number}", item

    def items(self, with_images: bool) -> Iterator[dict[str, Any]]:
        """What it was asked itself, as items with ids."""
        for own, item in self._asked():
            made = item.model_dump(exclude_none=True)
            said = "output_text" if made.get("role") == "assistant" else "input_text"
            for name in ("content", "output"):
                parts = getattr(item, name, None)
                if isinstance(item, InputMessage) and isinstance(parts, str):
                    parts = [InputText(type="text", text=parts)]
                if isinstance(parts, list) and not isinstance(item, InputReasoning):
                    made[name] = [_part(part, said, with_images) for part in parts]
            yield {"status": "completed"} | made | {"id": own}


class StoredResponses:
    """Responses by their ids; the oldest make room."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, StoredResponse] = OrderedDict()
        self._bytes = 0

    def add(self, response: dict[str, Any], asked: Sequence[InputItem] = ()) -> None:
        self.remove(response["id"])
        before = response.get("previous_response_id")
        earlier = () if before is None else (*(self._kept[before].earlier if before in self._kept else ()), before)
        told = json.dumps(response, ensure_ascii=False).encode("utf-8", "replace")
        kept = self._kept[response["id"]] = StoredResponse(response["id"], told, asked, earlier)
        self._bytes += kept.size
        while self._bytes > KEPT_BYTES:
            self.remove(next(iter(self._kept)))

    def get(self, id_: str) -> StoredResponse | None:
        return self._kept.get(id_)

    def chain(self, id_: str) -> list[StoredResponse] | None:
        """A response and all that it went on from, the first one first; None where not all of them are kept."""
        ids = (*self._kept[id_].earlier, id_) if id_ in self._kept else (id_,)
        return [self._kept[one] for one in ids] if self._kept.keys() >= set(ids) else None

    def remove(self, id_: str) -> None:
        if (kept := self._kept.pop(id_, None)) is not None:
            self._bytes -= kept.size

    def input_items(self, response: StoredResponse, with_images: bool) -> list[dict[str, Any]]:
        """All that a response was made from: what was asked and told before it, save what was deleted, and its own."""
        found: list[dict[str, Any]] = []
        for earlier in filter(None, map(self.get, response.earlier)):
            found += [*earlier.items(with_images), *json.loads(earlier.told)["output"]]
        return [*found, *response.items(with_images)]


def _letters(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    inner = vars(value).values() if isinstance(value, BaseModel) else value if isinstance(value, list) else ()
    return sum(map(_letters, inner))


def _prefix(item: InputItem) -> str:
    match item:
        case InputMessage():
            return "msg"
        case InputReasoning():
            return "rs"
        case InputCallOutput():
            return "fco" if item.type == "function_call_output" else "ctco"
    return "ctc" if isinstance(item, InputCustomCall) else "fc"


def _part(part: InputPart, said: str, with_images: bool) -> dict[str, Any]:
    if isinstance(part, InputImage):
        return part.model_dump() | {"image_url": part.image_url if with_images else None}
    if isinstance(part, InputText):
        return {"type": said, "text": part.text} | (
            {"annotations": [], "logprobs": []} if said == "output_text" else {}
        )
    return part.model_dump()
