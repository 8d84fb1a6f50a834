"""The items of a grounding benchmark from its files as published, each checked before anything is asked.

Whether boxes are `[x, y, width, height]` or corners, in pixels or in shares, differs between a benchmark and copies of
it: that is detected (`episodes/datasets/spaces.py`), and asked for where it is not certain. Boxes are taken
as published, also where one reaches over the edge of its picture.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holotron.actions.coordinates import SCALE
from holotron.episodes.datasets.drafts import Draft, DraftStep
from holotron.episodes.datasets.importer import seen_target
from holotron.episodes.datasets.layouts import read_drafts
from holotron.episodes.datasets.pictures import SourcePictures
from holotron.episodes.datasets.records import (
    BadRecord,
    DatasetError,
    SourceFile,
    SourceRecord,
    read_records,
    source_files,
)
from holotron.episodes.datasets.spaces import (
    BoxForm,
    SourceSpace,
    check_form,
    check_space,
    corners,
    find_space,
    space_of,
)
from holotron.eval.benchmarks import CAPABILITY, SETTING, GroundingBenchmark
from holotron.eval.targets import BoxTarget, Point, PolygonTarget, RefusalTarget, Target

STRAY = 0.02  # the share of published boxes that may be outside their pictures while their form is detected
CLASSES = "classification_result*.json"  # OSWorld-G's capabilities, beside its items or above them
_SETTING = re.compile(r"element_grounding_(\w+)\.json")
Size = tuple[int, int]


@dataclass(frozen=True)
class BenchmarkSource:
    """Where a benchmark's files are, and what is said of them; None: found out, an error where the data does not tell.

    refusals: items whose element is not there are asked, too. most_bad: the share of items that may be missing.
    limit: only the first items, to try it out.
    """

    folder: Path
    images: Path | None = None
    space: str | None = None
    boxes: BoxForm | None = None
    refusals: bool = False
    most_bad: float = 0.0
    limit: int | None = None

    def __post_init__(self) -> None:
        check_form(self.boxes)
        if self.space is not None:
            check_space(self.space)


@dataclass(frozen=True)
class GroundingItem:
    """One question. id: where it stands, which is the same in every run. groups: by grouping, those it belongs to."""

    id: str
    images: Path
    image: str
    instruction: str
    size: Size
    target: Target
    groups: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class LoadedBenchmark:
    """The items that can be asked, what could not be read (place and reason), and in which form the boxes were.

    refusals: how many items of that kind were left out, by rule. duplicates: items that are there twice, as published.
    """

    items: Sequence[GroundingItem]
    left_out: Sequence[str]
    space: str
    boxes: str
    refusals: int = 0
    duplicates: int = 0


def load_benchmark(benchmark: GroundingBenchmark, source: BenchmarkSource, pictures: SourcePictures) -> LoadedBenchmark:
    """The items of a benchmark's files. DatasetError where the form of boxes is not certain or too many are bad."""
    left_out: list[str] = []
    drafts = list(_drafts(benchmark, source, left_out))
    refusals = 0 if source.refusals else sum(draft.steps[0].absent for draft in drafts)
    asked = [draft for draft in drafts if source.refusals or not draft.steps[0].absent]
    duplicates = _duplicates(asked)
    sizes: list[Size | BadRecord] = [_size(draft, pictures) for draft in asked]
    known = [(draft, size) for draft, size in zip(asked, sizes, strict=True) if not isinstance(size, BadRecord)]
    space, form = _detect(benchmark, source, known)
    classes = _classes(source.folder)
    items: list[GroundingItem] = []
    for number, (draft, size) in enumerate(zip(asked[: source.limit], sizes, strict=False)):
        try:
            if isinstance(size, BadRecord):
                raise size
            items.append(_item(benchmark, draft, number, size, space, form, classes))
        except BadRecord as problem:
            left_out.append(f"{draft.where}: {problem}")
    if not items or len(left_out) > source.most_bad * (len(items) + len(left_out)):
        first = f", such as {left_out[0]}" if left_out else ""
        raise DatasetError(
            f"{len(left_out)} of {len(items) + len(left_out)} items cannot be asked{first}; a score without them would "
            "be another benchmark's. Mend the data, or allow some with --max-bad"
        )
    return LoadedBenchmark(items, left_out, space, form or "", refusals, duplicates)


def _size(draft: Draft, pictures: SourcePictures) -> Size | BadRecord:
    try:
        return pictures.size(draft.images, draft.steps[0].image)
    except BadRecord as problem:
        return problem


def _drafts(benchmark: GroundingBenchmark, source: BenchmarkSource, left_out: list[str]) -> Iterator[Draft]:
    for file in source_files(source.folder, source.images, benchmark.files):
        root: Path | None = source.images

        def told(record: SourceRecord, problem: BadRecord) -> None:
            left_out.append(f"{record.where}: {problem}")

        for draft in read_drafts("screenspot", read_records(file), told):
            if root is None:
                root = _image_root(file, source.folder, draft)
            below = file.path.relative_to(source.folder) if source.folder.is_dir() else file.path.name
            draft = replace(draft, where=f"{below}{draft.where.removeprefix(file.path.name)}")
            yield draft if draft.images == file.path.parent else replace(draft, images=root)


def _image_root(file: SourceFile, source: Path, draft: Draft) -> Path:
    """The folder from which a file names its images: its own, or one above it, up to the benchmark's."""
    pictures, folder = SourcePictures(), file.path.parent
    while True:
        try:
            pictures.size(folder, draft.steps[0].image)
            return folder
        except BadRecord:
            if folder == source or not folder.is_relative_to(source) or source.is_file():
                return file.images
            folder = folder.parent


def _duplicates(drafts: Sequence[Draft]) -> int:
    """Items that a file has twice are published so, and are counted; a file that repeats another's items is a copy."""
    homes: dict[str, str] = {}
    again = 0
    for draft in drafts:
        file = re.split(r"[\[:]", draft.where)[0]
        [step] = draft.steps
        key = json.dumps([draft.instruction, step.image, step.box, step.outline, step.absent])
        if homes.setdefault(key, file) != file:
            raise DatasetError(
                f"{file} repeats items of {homes[key]}, such as {draft.instruction[:60]!r}; give one with --data"
            )
        again += 1
    return again - len(homes)


def _detect(
    benchmark: GroundingBenchmark, source: BenchmarkSource, sized: Sequence[tuple[Draft, Size]]
) -> tuple[str, BoxForm | None]:
    """The space and the form of boxes: as is said, else as all records say, else as only one fits."""
    space, form = source.space, source.boxes
    spaces, forms = {draft.space for draft, _ in sized}, {draft.boxes for draft, _ in sized if draft.steps[0].box}
    if space is None and len(spaces) == 1:
        [space] = spaces
    if form is None and len(forms) == 1:
        [form] = forms
    if benchmark.unordered:
        form = form or "xyxy"
    seen = [seen_target(_ordered(benchmark, draft.steps[0], form), size) for draft, size in sized]
    return find_space(seen, space, form, max(source.most_bad, STRAY))


def _ordered(benchmark: GroundingBenchmark, step: DraftStep, form: BoxForm | None) -> DraftStep:
    """The step with its corners in order, where the benchmark has some that are not."""
    if step.box is None or not benchmark.unordered or form != "xyxy":
        return step
    x, y, other_x, other_y = step.box
    return replace(step, box=(min(x, other_x), min(y, other_y), max(x, other_x), max(y, other_y)))


def _item(
    benchmark: GroundingBenchmark,
    draft: Draft,
    number: int,
    size: Size,
    space: str,
    form: BoxForm | None,
    classes: Mapping[str, tuple[str, ...]],
) -> GroundingItem:
    [step] = draft.steps
    name = str(draft.extra.get("id", number))
    platform, _, kind = draft.name.partition("-")
    setting = _SETTING.search(draft.where)
    fields: dict[str, object] = {
        "platform": platform,
        "kind": kind.rpartition("-")[2],
        "box_type": "bbox",
        SETTING: setting[1] if setting else "",
        **draft.extra,
    }
    groups = {
        grouping: classes.get(_plain_id(name), ("unclassified",))
        if keys == (CAPABILITY,)
        else ("-".join(str(fields.get(key) or "unknown") for key in keys),)
        for grouping, keys in benchmark.groupings.items()
    }
    target = _target(benchmark, _ordered(benchmark, step, form), size, space, form)
    return GroundingItem(f"{draft.where}#{name}", draft.images, step.image, draft.instruction, size, target, groups)


def _target(benchmark: GroundingBenchmark, step: DraftStep, size: Size, spec: str, form: BoxForm | None) -> Target:
    if step.absent:
        return RefusalTarget()
    try:
        space = space_of(spec, size, step.stated)
    except ValueError as error:
        raise BadRecord("no size", str(error)) from None
    if step.outline:
        return PolygonTarget(tuple(_shares(space, point) for point in step.outline))
    assert step.box is not None
    left, top, right, bottom = corners(step.box, form or "xyxy")
    if right < left or bottom < top:
        raise BadRecord("bad box", f"the box {list(step.box)} has its right or lower side before the other")
    return BoxTarget((*_shares(space, (left, top)), *_shares(space, (right, bottom))), benchmark.edges)


def _shares(space: SourceSpace, point: Point) -> Point:
    """One division each, so that an edge and an answer that name the same place are the same number."""
    width, height = (SCALE, SCALE) if space.kind == "relative" else (space.width, space.height)
    return point[0] / (width / space.factor), point[1] / (height / space.factor)


def _classes(folder: Path) -> dict[str, tuple[str, ...]]:
    """The capabilities of OSWorld-G's items by their ids; an item may have several."""
    base = folder if folder.is_dir() else folder.parent
    found = sorted(path for place in (base, base.parent) for path in place.glob(CLASSES))
    classes: dict[str, tuple[str, ...]] = {}
    for name, members in (
        json.loads(found[-1].read_text(encoding="utf-8")).get("classified", {}).items() if found else ()
    ):
        for member in members:
            key = _plain_id(str(member.get("id")))
            classes[key] = tuple(dict.fromkeys((*classes.get(key, ()), str(name))))
    return classes


def _plain_id(name: str) -> str:
    return name.replace("_", "-")  # the two files of one release write it differently


def fetch_benchmark(benchmark: GroundingBenchmark, out: Path) -> Path:
    """Fetch a benchmark from the hub into a folder, archives unpacked. DatasetError where that fails."""
    if benchmark.hub is None:
        raise DatasetError(f"{benchmark.name} is not fetched: it is {benchmark.elsewhere}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise DatasetError("--data hub needs huggingface_hub: pip install huggingface_hub") from None
    try:
        # Real files, no links to a cache elsewhere: images are only read below the benchmark's folder.
        snapshot_download(benchmark.hub, repo_type="dataset", local_dir=out)
    except Exception as error:  # the hub client and the network raise many types; the way out is the same
        raise DatasetError(
            f"{benchmark.hub} could not be fetched ({type(error).__name__}: {str(error)[:200]}); check the network and "
            "HF_TOKEN, or download it elsewhere and give its folder with --data"
        ) from error
    for path in sorted((*out.rglob("*.zip"), *out.rglob("*.tar"))):
        unpacked = path.with_name(f"{path.name}.unpacked")
        if not unpacked.exists():
            if path.suffix == ".tar":
                shutil.unpack_archive(path, path.parent, filter="data")
            else:
                shutil.unpack_archive(path, path.parent)
            unpacked.touch()
    return out
