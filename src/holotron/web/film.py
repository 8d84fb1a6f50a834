"""An episode as a GIF or an MP4: each screenshot with the action marked, and the action in words below."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from holotron.actions.action import ActionError
from holotron.actions.coordinates import SCALE
from holotron.actions.describe import describe
from holotron.episodes.errors import EpisodeError
from holotron.episodes.files import PARTIAL
from holotron.episodes.record import EpisodeInfo, Step
from holotron.episodes.store import EpisodeStore

SUFFIXES = (".gif", ".mp4")
INK, PAPER, MARK = "#f3f5f9", "#1f2430", "#e5484d"


class FilmError(ValueError):
    """The film cannot be made, or not like that."""


@dataclass(frozen=True)
class FilmOptions:
    """seconds: of each step; the last one stays twice as long. width: of the film, at most."""

    seconds: float = 1.5
    width: int = 960


def write_film(store: EpisodeStore, episode_id: str, out: Path, options: FilmOptions | None = None) -> int:
    """Write the episode to a .gif or .mp4 file; how many steps it shows."""
    options = options or FilmOptions()
    if out.suffix.lower() not in SUFFIXES:
        raise FilmError(f"{out} must end in {' or '.join(SUFFIXES)}")
    frames = list(_frames(store, store.info(episode_id), options.width))
    if not frames:
        raise FilmError(f"the episode {episode_id} has no screenshots")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.stem}{PARTIAL}{out.suffix}")
    try:
        (_write_gif if out.suffix.lower() == ".gif" else _write_mp4)(frames, partial, options.seconds)
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return len(frames)


def _frames(store: EpisodeStore, info: EpisodeInfo, width: int) -> Iterator[Image.Image]:
    steps = [step for step in store.steps(info.id, salvage=True) if step.observation.image is not None]
    for step in steps:
        try:
            shot = Image.open(io.BytesIO(store.image(step.observation.image or ""))).convert("RGB")
        except EpisodeError:
            continue  # a screenshot that is lost leaves a gap
        last = step is steps[-1]
        yield _frame(shot, step, len(steps), info, last, width)


def _frame(shot: Image.Image, step: Step, steps: int, info: EpisodeInfo, last: bool, width: int) -> Image.Image:
    scale = min(1.0, width / shot.width) if shot.width >= 400 else 400 / shot.width
    # Video codecs want even sides.
    size = (round(shot.width * scale) // 2 * 2, round(shot.height * scale) // 2 * 2)
    shot = shot.resize(size, Image.Resampling.LANCZOS)
    height = max(13, size[0] // 60)
    font, line = ImageFont.load_default(height), round(height * 1.7)
    frame = Image.new("RGB", (size[0], size[1] + (2 * line + 10) // 2 * 2), PAPER)
    frame.paste(shot, (0, 0))
    draw = ImageDraw.Draw(frame)
    words = f"no action: {step.result.error}"
    if step.action is not None:
        try:
            action = step.action.parse()
            words = describe(action)
            _mark(draw, action, size)
        except ActionError as error:
            words = f"no action: {error}"
    ending = f"  [{_ending(info)}]" if last else ""
    draw.text((10, size[1] + 5), _cut(info.task.text, draw, font, size[0] - 20), "#8a93a5", font)
    caption = _cut(f"{step.index + 1}/{steps}  {words}{ending}", draw, font, size[0] - 20)
    draw.text((10, size[1] + 5 + line), caption, INK, font)
    return frame


def _ending(info: EpisodeInfo) -> str:
    outcome = info.outcome
    if outcome is None:
        return "unfinished"
    return (
        outcome.reason if outcome.success is None else "solved" if outcome.success else f"{outcome.reason}, not solved"
    )


def _mark(draw: ImageDraw.ImageDraw, action: object, size: tuple[int, int]) -> None:
    """A ring where the action points, and a line to where it drags."""
    points = []
    for names in (("x", "y"), ("to_x", "to_y")):
        x, y = (getattr(action, name, None) for name in names)
        if x is not None and y is not None:
            points.append((x * size[0] / SCALE, y * size[1] / SCALE))
    if len(points) == 2:
        draw.line(points, MARK, 3)
    for x, y in points:
        for radius, colour in ((14, "white"), (12, MARK)):
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), outline=colour, width=3)


def _cut(text: str, draw: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    text = " ".join(text.split())
    if draw.textlength(text, font) <= width:
        return text
    while text and draw.textlength(text + "…", font) > width:
        text = text[:-1]
    return text + "…"


def _write_gif(frames: list[Image.Image], path: Path, seconds: float) -> None:
    times = [round(seconds * 1000)] * (len(frames) - 1) + [round(2000 * seconds)]
    # One palette for all frames: what does not change between them is then the same, and takes no room.
    small = [frame.resize((160, 120)) for frame in frames]
    sample = Image.new("RGB", (160, 120 * len(small) + 40), MARK)  # with enough of the mark's colour to keep it
    for number, frame in enumerate(small):
        sample.paste(frame, (0, 120 * number))
    palette = sample.quantize(255, method=Image.Quantize.MEDIANCUT)
    reduced = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    reduced[0].save(path, save_all=True, append_images=reduced[1:], duration=times, loop=0, optimize=True)


def _write_mp4(frames: list[Image.Image], path: Path, seconds: float) -> None:
    try:
        import av
    except ImportError as error:
        raise FilmError("MP4 needs the package av: pip install 'holotron[video]'; or write a .gif") from error
    rate = 10
    with av.open(str(path), "w") as film:
        stream = film.add_stream("libx264", rate=rate)
        stream.width = max(frame.width for frame in frames)
        stream.height = max(frame.height for frame in frames)
        stream.pix_fmt = "yuv420p"
        for number, frame in enumerate(frames):
            whole = Image.new("RGB", (stream.width, stream.height), PAPER)  # a view may have changed its size
            whole.paste(frame, (0, 0))
            picture = av.VideoFrame.from_image(whole)
            for _ in range(round(seconds * rate) * (2 if number == len(frames) - 1 else 1)):
                for packet in stream.encode(picture):
                    film.mux(packet)
        for packet in stream.encode():
            film.mux(packet)
