"""Labelled screens written in the layouts in which grounding benchmarks are published."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Labelled:
    """An element of a screenshot: its box in pixels, left, top, right, bottom; or a polygon; or neither: not there."""

    png: bytes
    size: tuple[int, int]
    instruction: str
    box: Box | None = None
    polygon: tuple[float, ...] = ()
    kind: str = "icon"
    platform: str = "web"


def write_layout(name: str, folder: Path, items: Sequence[Labelled]) -> Path:
    """Write the items as the benchmark of this name is published; the folder to read them from."""
    folder.mkdir(parents=True, exist_ok=True)
    (LAYOUTS | REGION_LAYOUTS)[name](folder, items)
    return folder


def fits(name: str, item: Labelled) -> bool:
    """Whether the layout has a way to say it."""
    return item.box is not None or name.startswith("osworld-g")


def _image(folder: Path, item: Labelled, kind: str = "png") -> str:
    """Each screenshot once; its name."""
    name = f"shot_{hashlib.sha256(item.png).hexdigest()[:12]}.{kind}"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        if kind == "png":
            path.write_bytes(item.png)
        else:
            Image.open(io.BytesIO(item.png)).save(path, kind, lossless=True, method=0, quality=0)
    return name


def _xywh(box: Box) -> list[float]:
    return [box[0], box[1], box[2] - box[0], box[3] - box[1]]


def _shares(box: Box, size: tuple[int, int]) -> list[float]:
    return [side / size[index % 2] for index, side in enumerate(box)]


def _json(path: Path, records: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(records), encoding="utf-8")


def _parquet(path: Path, records: Sequence[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(records)), path, row_group_size=3)


def _screenspot(folder: Path, items: Sequence[Labelled]) -> None:
    sources = {"web": "shop", "desktop": "windows", "mobile": "ios"}
    records = [
        {
            "file_name": f"{number}.png",
            "bbox": _shares(item.box, item.size),
            "instruction": item.instruction,
            "data_type": item.kind,
            "data_source": sources[item.platform],
            "image": {"bytes": item.png, "path": f"{number}.png"},
        }
        for number, item in enumerate(items)
        if item.box
    ]
    _parquet(folder / "data" / "test-00000-of-00001.parquet", records)


def _screenspot_v2(folder: Path, items: Sequence[Labelled]) -> None:
    for platform in ("desktop", "mobile", "web"):
        records = [
            {
                "img_filename": _image(folder / "screenspotv2_image", item),
                "bbox": _xywh(item.box),
                "instruction": item.instruction,
                "data_type": item.kind,
                "data_source": "shop",
            }
            for item in items
            if item.platform == platform and item.box
        ]
        _json(folder / f"screenspot_{platform}_v2.json", records)


def _screenspot_pro(folder: Path, items: Sequence[Labelled]) -> None:
    records = [
        {
            "id": f"word_{number}",
            "img_filename": "word/" + _image(folder / "images" / "word", item),
            "bbox": list(item.box),
            "instruction": item.instruction,
            "application": "word",
            "platform": "linux",
            "group": "Office",
            "ui_type": item.kind,
            "img_size": list(item.size),
        }
        for number, item in enumerate(items)
        if item.box
    ]
    _json(folder / "annotations" / "word_linux.json", records)


def _osworld_g(folder: Path, items: Sequence[Labelled]) -> None:
    records, classes = [], {"text_matching": list[Any](), "layout_understanding": list[Any]()}
    for number, item in enumerate(items):
        kind = "bbox" if item.box else "polygon" if item.polygon else "refusal"
        records.append(
            {
                "id": f"a{number}-0",
                "image_path": _image(folder / "images", item),
                "image_size": list(item.size),
                "instruction": item.instruction,
                "box_type": kind,
                "box_coordinates": _xywh(item.box) if item.box else list(item.polygon) or [0, 0, 0, 0],
                "GUI_types": ["Label"],
            }
        )
        for name in ("text_matching", "layout_understanding")[: 1 + number % 2] if kind != "refusal" else ():
            classes[name].append({"id": f"a{number}_0", "instruction": item.instruction})
    _json(folder / "OSWorld-G.json", records)
    _json(folder / "OSWorld-G_refined.json", records)
    _json(folder / "classification_result.json", {"classified": classes, "unclassified": []})


def _groundui(folder: Path, items: Sequence[Labelled]) -> None:
    lines = [
        {
            "image": _image(folder / "images", item),
            "instruction": item.instruction,
            "raw_instruction": item.instruction,
            "bbox": list(item.box),
            "source": "omniact",
            "platform": item.platform,
            "resolution": list(item.size),
        }
        for item in items
        if item.box
    ]
    (folder / "metadata_1k.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _webclick(folder: Path, items: Sequence[Labelled]) -> None:
    records = [
        {
            "image": {"bytes": item.png, "path": f"{number}.png"},
            "instruction": item.instruction,
            "bbox": _shares(item.box, item.size),
            "bucket": ("agentbrowse", "humanbrowse", "calendars")[number % 3],
        }
        for number, item in enumerate(items)
        if item.box
    ]
    _parquet(folder / "data" / "test-00000-of-00001.parquet", records)


def _showdown(folder: Path, items: Sequence[Labelled]) -> None:
    base = folder / "showdown-clicks-dev"
    rows = [
        {
            "id": f"c{number}",
            "recording_id": "R",
            "image": "frames/R/" + _image(base / "frames" / "R", item, "webp"),
            "instruction": item.instruction,
            **dict(zip(("x1", "y1", "x2", "y2"), item.box, strict=True)),
            "width": item.size[0],
            "height": item.size[1],
        }
        for number, item in enumerate(items)
        if item.box
    ]
    with (base / "data.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _ui_vision(folder: Path, items: Sequence[Labelled]) -> None:
    """Every other box has its corners swapped, as some published ones have."""
    boxed = [item for item in items if item.box]
    for place, setting in enumerate(("basic", "functional", "spatial")):
        records = [
            {
                "image_path": "element_grounding/" + _image(folder / "images" / "element_grounding", item),
                "prompt_to_evaluate": item.instruction,
                "bbox": [*item.box[2:], *item.box[:2]] if number % 2 else list(item.box),
                "image_size": list(item.size),
                "platform": "gimp",
                "element_type": item.kind,
            }
            for number, item in enumerate(boxed)
            if number % 3 == place and item.box
        ]
        _json(folder / "annotations" / "element_grounding" / f"element_grounding_{setting}.json", records)
    _json(folder / "annotations" / "layout_grounding" / "layout_grounding.json", [{"name": "a panel"}])


def _ui_vision_layout(folder: Path, items: Sequence[Labelled]) -> None:
    """An instruction's words before a colon are the region's name."""
    records = [
        {
            "image_path": "layout_grounding/" + _image(folder / "images" / "layout_grounding", item),
            "name": item.instruction.partition(": ")[0],
            "explanation": item.instruction.partition(": ")[2],
            "bbox": list(item.box),
            "image_size": list(item.size),
            "platform": "gimp",
        }
        for item in items
        if item.box
    ]
    _json(folder / "annotations" / "layout_grounding" / "layout_grounding.json", records)


LAYOUTS: dict[str, Callable[[Path, Sequence[Labelled]], None]] = {
    "screenspot": _screenspot,
    "screenspot-v2": _screenspot_v2,
    "screenspot-pro": _screenspot_pro,
    "osworld-g": _osworld_g,
    "osworld-g-refined": _osworld_g,
    "groundui-1k": _groundui,
    "webclick": _webclick,
    "showdown-clicks": _showdown,
    "ui-vision": _ui_vision,
}
REGION_LAYOUTS = {"ui-vision-layout": _ui_vision_layout}  # answered by boxes
