"""What is to be labelled: pictures, videos, stores of episodes and addresses, as a list of items with names."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageChops, ImageSequence

from holotron.episodes.datasets.pictures import SourcePictures
from holotron.episodes.datasets.records import BadRecord
from holotron.episodes.record import EpisodeInfo
from holotron.episodes.store import EpisodeStore

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
VIDEOS = (".mp4", ".webm", ".mov", ".mkv", ".avi", ".gif")
FRAMES_PER_SECOND = 2
CHANGED = 0.01  # the share of pixels in which a frame must differ from the last that was kept


class InputError(ValueError):
    """Something that cannot be labelled."""


class DamagedVideo(InputError):
    """A video that cannot be read; others may be."""


@dataclass(frozen=True)
class Item:
    """One screen to be, under a name that is the same in every run. episode, step: where it comes from a store."""

    name: str
    path: Path | None = None
    url: str = ""
    episode: str = ""
    step: int | None = None
    digest: str = ""


@dataclass(frozen=True)
class Inputs:
    """Everything that was given. stores: by the place of their items' episodes."""

    items: tuple[Item, ...]
    videos: tuple[Path, ...]
    stores: tuple[EpisodeStore, ...]

    def episodes(self) -> Iterator[tuple[EpisodeStore, EpisodeInfo]]:
        """The finished episodes of all stores."""
        for store in self.stores:
            for info in store.list_episodes(finished=True):
                yield store, info


def find_inputs(given: Sequence[str]) -> Inputs:
    """Of addresses, lists of them (.txt, one a line), pictures, videos, stores, and folders of pictures and videos."""
    items: list[Item] = []
    videos: list[Path] = []
    stores: list[EpisodeStore] = []
    for each in given:
        if each.startswith(("http://", "https://")):
            items.append(Item(f"url:{each}", url=each))
            continue
        path = Path(each)
        if not path.exists():
            raise InputError(f"there is no file or folder {each}, and it is no address")
        if (path / "episodes").is_dir():
            stores.append(EpisodeStore(path))
            items += _store_items(stores[-1])
        elif path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.is_file())
            items += [_picture(file) for file in found if file.suffix.lower() in PICTURES]
            videos += [file for file in found if file.suffix.lower() in VIDEOS]
        elif path.suffix.lower() in PICTURES:
            items.append(_picture(path))
        elif path.suffix.lower() in VIDEOS:
            videos.append(path)
        elif path.suffix.lower() == ".txt":
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            items += [item for line in lines for item in find_inputs([line]).items]
        else:
            raise InputError(f"{each} is no picture, video, store of episodes or list of addresses (.txt)")
    if not items and not videos:
        raise InputError(f"there is nothing to label in {', '.join(given)}")
    return Inputs(tuple(dict.fromkeys(items)), tuple(videos), tuple(stores))


def _picture(path: Path) -> Item:
    return Item(f"file:{path}", path)


def _store_items(store: EpisodeStore) -> Iterator[Item]:
    for info in store.list_episodes(finished=True):
        for step in store.steps(info.id, salvage=True):
            if step.observation.image is not None:
                name = f"episode:{store.folder}:{info.id}:{step.index}"
                yield Item(name, store.folder, step.observation.url, info.id, step.index, step.observation.image)


def read_item(item: Item, pictures: SourcePictures) -> bytes:
    """The screen of an item that is no address, as PNG; InputError where it cannot be read."""
    assert item.path is not None
    if item.episode:
        return EpisodeStore(item.path).image(item.digest)
    try:
        return pictures.read(item.path.parent, item.path.name).png
    except BadRecord as error:
        raise InputError(str(error)) from None


# ---- videos ----


def video_frames(path: Path, folder: Path) -> list[Item]:
    """The frames of a video in which something changed, as files in a folder; those of an earlier run are taken."""
    target = folder / f"{path.stem}-{path.stat().st_size}"
    done = target / "done"
    if not done.exists():
        target.mkdir(parents=True, exist_ok=True)
        for number, frame in enumerate(_distinct(_frames(path))):
            frame.save(target / f"{number:05d}.png")
        done.touch()
    return [Item(f"video:{path}:{file.stem}", file) for file in sorted(target.glob("*.png"))]


def _distinct(frames: Iterator[Image.Image]) -> Iterator[Image.Image]:
    last: Image.Image | None = None
    for frame in frames:
        if last is None or last.size != frame.size or _changed(last, frame) >= CHANGED:
            last = frame
            yield frame


def _changed(one: Image.Image, other: Image.Image) -> float:
    # A codec's noise is no change: only differences that can be seen count.
    difference = ImageChops.difference(one, other).convert("L").point(lambda value: 255 if value > 24 else 0)
    return difference.histogram()[255] / (one.width * one.height)


def _frames(path: Path) -> Iterator[Image.Image]:
    if path.suffix.lower() == ".gif":
        try:
            with Image.open(path) as film:
                yield from (frame.convert("RGB") for frame in ImageSequence.Iterator(film))
        except (OSError, ValueError) as error:
            raise DamagedVideo(f"{path} cannot be read: {error}") from None
        return
    if (program := shutil.which("ffmpeg")) is not None:
        yield from _ffmpeg(program, path)
        return
    try:
        import av
    except ImportError:
        raise InputError(
            f"{path} is a video: install ffmpeg, or the package av with: pip install 'holotron[video]'"
        ) from None
    try:
        with av.open(str(path)) as film:
            following = 0.0
            for frame in film.decode(video=0):
                if frame.time is None or frame.time >= following:
                    following = (frame.time or following) + 1 / FRAMES_PER_SECOND
                    yield frame.to_image()
    except (av.FFmpegError, IndexError) as error:  # the second: it has sound alone
        raise DamagedVideo(f"{path} cannot be read: {error}") from None


def _ffmpeg(program: str, path: Path) -> Iterator[Image.Image]:
    command = [program, "-v", "error", "-i", str(path), "-vf", f"fps={FRAMES_PER_SECOND}"]
    command += ["-f", "image2pipe", "-c:v", "ppm", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while (magic := process.stdout.readline()).strip() == b"P6":
            width, height = map(int, process.stdout.readline().split())
            head = magic + b"%d %d\n" % (width, height) + process.stdout.readline()
            data = head + process.stdout.read(3 * width * height)
            with Image.open(io.BytesIO(data)) as frame:
                yield frame.convert("RGB")
        problem = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        raise DamagedVideo(f"{path} cannot be read: {problem.splitlines()[-1] if problem else 'ffmpeg failed'}")
