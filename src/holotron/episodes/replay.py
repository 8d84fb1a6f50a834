"""Doing a recorded episode again in a browser, to see whether the pages are still what they were."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from PIL import Image, ImageChops, ImageDraw

from holotron.actions.action import ActionError, is_terminal
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.errors import ActionFailed, Refused
from holotron.env.safety.policy import SafetyPolicy, origin_of
from holotron.env.safety.secrets import MENTION, Secrets
from holotron.episodes.errors import EpisodeError
from holotron.episodes.files import write_whole
from holotron.episodes.record import EpisodeInfo, Step, StepAction
from holotron.episodes.store import EpisodeStore

Status = Literal["same", "changed", "failed"]
Box = tuple[int, int, int, int]
# In a viewport of 1280×800 more than a caret that blinks, and less than most digits.
TOLERANCE = 5e-5
GAP, EDGE = 12, (220, 30, 30)


class ReplayError(EpisodeError):
    """The episode cannot be replayed at all: it has no address, or its first page cannot be opened."""


@dataclass(frozen=True)
class Difference:
    """Two screenshots compared. share: pixels that differ, of all; largest: by how much of 255; box: where, in pixels
    (left, top, right, bottom). Pictures of different sizes differ everywhere.
    """

    recorded_size: tuple[int, int]
    size: tuple[int, int]
    share: float
    largest: int
    box: Box | None


@dataclass(frozen=True)
class ReplayedStep:
    """What became of one step. Without a difference there was no recorded screenshot to compare with."""

    index: int
    status: Status
    action: str = ""
    detail: str = ""
    difference: Difference | None = None
    picture: str | None = None


@dataclass(frozen=True)
class ReplayReport:
    """The steps that were replayed, of so many; fewer if a failure ended it."""

    episode_id: str
    url: str
    steps: tuple[ReplayedStep, ...]
    total: int

    def indices(self, status: Status) -> list[int]:
        """Which steps went that way."""
        return [step.index for step in self.steps if step.status == status]

    @property
    def same(self) -> bool:
        """Whether every step was replayed and found the page it found before."""
        return len(self.steps) == self.total and all(step.status == "same" for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        counts = {status: len(self.indices(status)) for status in get_args(Status)}
        return {
            "episode": self.episode_id,
            "url": self.url,
            "same": self.same,
            "total": self.total,
            "counts": counts,
            "steps": [asdict(step) for step in self.steps],
        }


async def replay(
    store: EpisodeStore,
    episode_id: str,
    browsers: Browsers,
    *,
    out: str | Path | None = None,
    tolerance: float = TOLERANCE,
    go_on: bool = False,
    options: EnvOptions | None = None,
    allow_private: Sequence[str] = (),
    on_step: Callable[[ReplayedStep], None] = lambda _: None,
) -> ReplayReport:
    """Open the episode's address and carry out its actions again, comparing what is seen before each.

    The actions are real: what was bought or sent is bought or sent again. Secrets are never typed, and `options` (its
    safety policy above all; by default the origins that the episode visited are allowed, of this machine and private
    networks only those at the hosts `allow_private`) lose theirs. A step has changed if more than `tolerance` of its
    pixels differ; `out` gets a picture of each that has. A step has failed if its action cannot be carried out though
    it could then; that ends the replay unless `go_on`. InfrastructureError passes through.
    """
    if not 0 <= tolerance <= 1:
        raise ValueError(f"tolerance is {tolerance}; it is a share of the pixels, from 0 to 1")
    info = store.info(episode_id)
    steps = list(store.steps(episode_id))
    url, (width, height) = _beginning(info, steps)
    folder = None if out is None else Path(out)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    settings = options or EnvOptions(safety=_episodes_own(url, steps, allow_private))
    settings = replace(settings, width=width, height=height, secrets=Secrets(), login=None)
    done: list[ReplayedStep] = []
    async with await BrowserEnv.open(browsers, settings) as env:
        try:
            if options is None and (rule := SafetyPolicy(None, allow_private).refusal(url)) is not None:
                # Episodes come from anywhere, and must not choose what of this machine is visited.
                raise Refused(rule, rule)
            await env.goto(url)
        except (ActionFailed, Refused) as error:
            raise ReplayError(f"{url}, where the episode {episode_id} begins, cannot be opened: {error}") from error
        for step in steps:
            replayed = await _replay_step(store, step, env, tolerance, folder)
            done.append(replayed)
            on_step(replayed)
            if replayed.status == "failed" and not go_on:
                break
    return ReplayReport(episode_id, url, tuple(done), len(steps))


def _beginning(info: EpisodeInfo, steps: list[Step]) -> tuple[str, tuple[int, int]]:
    first = steps[0].observation if steps else None
    url = info.task.url or (first.url if first else "")
    if not url:
        raise ReplayError(f"the episode {info.id} does not say at which address it began")
    if urlsplit(url).scheme not in ("http", "https"):
        raise ReplayError(f"the episode {info.id} begins at {url}: only episodes on web sites can be done again")
    if MENTION.search(url):
        raise ReplayError(f"the address of the episode {info.id} holds a secret, which a replay never uses")
    if first is not None:
        return url, (first.width, first.height)
    return url, info.environment.viewport or (EnvOptions.width, EnvOptions.height)


def _episodes_own(url: str, steps: Sequence[Step], allow_private: Sequence[str] = ()) -> SafetyPolicy:
    """The origins that an episode visited, public or at these hosts, and nothing else."""
    visited = (url, *(step.observation.url for step in steps))
    origins = {origin_of(address) for address in visited if urlsplit(address).netloc}
    anywhere = SafetyPolicy(None, allow_private)
    return SafetyPolicy(sorted(origin for origin in origins if anywhere.refusal(origin) is None), allow_private)


async def _replay_step(
    store: EpisodeStore, step: Step, env: BrowserEnv, tolerance: float, folder: Path | None
) -> ReplayedStep:
    observation = await env.observe()
    difference, picture, changes = None, None, []
    if step.observation.image is not None:
        recorded = await asyncio.to_thread(store.image, step.observation.image)
        difference = await asyncio.to_thread(compare, recorded, observation.image)
        if difference.share > tolerance:
            changes.append(f"{100 * difference.share:.3g}% of the pixels differ")
            if folder is not None:
                path = folder / f"step-{step.index:04d}.png"
                await asyncio.to_thread(_write_picture, path, recorded, observation.image, difference.box)
                picture = str(path)
    problem = await _act(step.action, env)
    if problem and not step.result.ok:
        problem = None  # it failed then, too
    elif not problem and not step.result.ok and step.action is not None:
        changes.append(f"the action works now, and failed then: {step.result.error}")
    status: Status = "failed" if problem else "changed" if changes else "same"
    detail = "; ".join(filter(None, [problem, *changes]))
    return ReplayedStep(step.index, status, step.action.text if step.action else "", detail, difference, picture)


async def _act(recorded: StepAction | None, env: BrowserEnv) -> str | None:
    """Carry out an action; returns what kept it from being carried out."""
    if recorded is None:
        return None
    if MENTION.search(recorded.text):
        return "the action types a secret, which a replay never does"
    try:
        action = recorded.parse()
        if not is_terminal(action):
            await env.act(action)
    except (ActionError, ActionFailed, Refused) as error:
        return str(error)
    return None


# ---- pictures ----


def compare(recorded: bytes, now: bytes) -> Difference:
    """How two PNGs differ."""
    before, after = _opened(recorded), _opened(now)
    if before.size != after.size:
        return Difference(before.size, after.size, 1.0, 255, None)
    # The largest difference of a pixel's three channels, so that any of them counts.
    red, green, blue = ImageChops.difference(before, after).split()
    apart = ImageChops.lighter(ImageChops.lighter(red, green), blue)
    counts = apart.histogram()
    largest = max(value for value, count in enumerate(counts) if count)
    share = 1 - counts[0] / (before.width * before.height)
    return Difference(before.size, after.size, share, largest, apart.getbbox())


def _write_picture(path: Path, recorded: bytes, now: bytes, box: Box | None) -> None:
    """Then at the left, now at the right, a frame around what differs."""
    pictures = [_opened(recorded), _opened(now)]
    width = sum(picture.width for picture in pictures) + GAP
    canvas = Image.new("RGB", (width, max(picture.height for picture in pictures)), EDGE)
    left = 0
    for picture in pictures:
        if box is not None:
            ImageDraw.Draw(picture).rectangle(_around(box, picture.size), outline=EDGE, width=2)
        canvas.paste(picture, (left, 0))
        left += picture.width + GAP
    buffer = io.BytesIO()
    canvas.save(buffer, "PNG")
    write_whole(path, buffer.getvalue(), sync=False)


def _around(box: Box, size: tuple[int, int]) -> Box:
    left, top, right, bottom = box
    return max(0, left - 3), max(0, top - 3), min(size[0] - 1, right + 2), min(size[1] - 1, bottom + 2)


def _opened(png: bytes) -> Image.Image:
    with Image.open(io.BytesIO(png)) as image:
        return image.convert("RGB")
