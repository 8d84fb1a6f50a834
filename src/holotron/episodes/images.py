"""Screenshots by the SHA-256 of their bytes: equal ones are kept once, and each can be checked when it is read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from holotron.episodes.errors import Damaged, EpisodeError
from holotron.episodes.files import full_disk_named, write_whole

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


class ImageFolder:
    """A folder of PNG files; many processes may write into it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path_of(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.png"

    def put(self, data: bytes, sync: bool) -> str:
        """Keep an image and return its name."""
        png_size(data)
        digest = hashlib.sha256(data).hexdigest()
        path = self.path_of(digest)
        if not self._is_there(path, len(data)):
            with full_disk_named(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data, sync)
        return digest

    def get(self, digest: str) -> bytes:
        """The bytes of an image, checked against its name."""
        path = self.path_of(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise Damaged(f"the image {path} is missing") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise Damaged(f"the image {path} was changed: its bytes do not match its name")
        return data

    def __contains__(self, digest: str) -> bool:
        return self.path_of(digest).is_file()

    def _is_there(self, path: Path, size: int) -> bool:
        # After a loss of power a file that was not synced may be empty; then it is written again.
        try:
            return path.stat().st_size == size
        except FileNotFoundError:
            return False


def png_size(data: bytes) -> tuple[int, int]:
    """Width and height of a PNG file."""
    if len(data) < 33 or not data.startswith(PNG_SIGNATURE) or data[12:16] != b"IHDR":
        raise EpisodeError(f"a screenshot is kept as PNG; these {len(data)} bytes are not")
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
