"""A played episode as the trainer learns from it: the very tokens that the engine saw and drew, with what is known of
each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holotron.agent.chat import Message
from holotron.agent.formats.base import conversation
from holotron.agent.policy_format import PolicyFormat
from holotron.episodes.examples import ExampleError
from holotron.model.config import ModelConfig
from holotron.model.grids import image_tokens
from holotron.model.image import image_size
from holotron.train.rl.token_masks import TokenMasks
from holotron.train.sequences import Picture, Sequence

if TYPE_CHECKING:  # records need pydantic
    from holotron.episodes.record import Episode, ModelOutput, Step
    from holotron.episodes.store import EpisodeStore

ToPicture = Callable[[bytes], Picture]


@dataclass(frozen=True)
class PlayedSequence:
    """The session of one episode, or one step of it where each prompt was written anew.

    What follows is of each drawn token, in order; forced ones are not learned. engine: its log-probability when it was
    drawn. version: of the weights then. step: which of this sequence it is of. allowed: what it was drawn from.
    states: what each step saw, by the hash of its image.
    """

    sequence: Sequence
    engine: NDArray[np.float32]
    version: NDArray[np.int64]
    step: NDArray[np.int64]
    allowed: NDArray[np.int32]
    states: tuple[str, ...]


class PlayedReader:
    """Reads episodes that a model of this process played. formats: instead of policy_format, by their benchmark."""

    def __init__(
        self,
        store: EpisodeStore,
        config: ModelConfig,
        policy_format: PolicyFormat,
        masks: TokenMasks,
        formats: Mapping[str, PolicyFormat] | None = None,
    ) -> None:
        self._store, self._config, self._format, self._masks = store, config, policy_format, masks
        every = {"": policy_format} | dict(formats or {})
        self._schemas = {(name, forced): every[name].schema(forced) for name in every for forced in (False, True)}

    def read(self, *episode_ids: str) -> list[list[PlayedSequence]]:
        """The sequences of each; a screen that several of their steps saw is read once, and is one Picture.

        ExampleError where an episode lacks what only an engine in this process records.
        """
        image, picture = cache(self._store.image), cache(self._picture)
        return [self._read(self._store.read(episode), image, picture) for episode in episode_ids]

    def _read(self, episode: Episode, image: Callable[[str], bytes], picture: ToPicture) -> list[PlayedSequence]:
        shown = self._shown(episode, image)
        if self._format.windowed:
            pairs = zip(episode.steps, shown, strict=True)
            return [self._sequence(episode, [step], pngs, picture) for step, pngs in pairs]
        return [self._sequence(episode, episode.steps, [png for pngs in shown for png in pngs], picture)]

    def _sequence(
        self, episode: Episode, steps: ListOf[Step], pngs: ListOf[bytes], picture: ToPicture
    ) -> PlayedSequence:
        ids: list[int] = []
        learn: list[bool] = []
        engine: list[float] = []
        versions: list[int] = []
        numbers: list[int] = []
        allowed: list[NDArray[np.int32]] = []
        written = (episode.task.benchmark or "") if (episode.task.benchmark, False) in self._schemas else ""
        for number, step in enumerate(steps):
            output = _recorded(episode.id, step)
            assert output.prompt_ids is not None
            assert output.token_ids is not None
            assert output.logprobs is not None
            assert output.forced is not None
            drawn = [not forced for forced in output.forced]
            ids += [*output.prompt_ids, *output.token_ids]
            learn += [False] * len(output.prompt_ids) + drawn
            of_tokens = output.weight_versions or (output.weight_version,) * len(drawn)
            engine += [value for value, was_drawn in zip(output.logprobs, drawn, strict=True) if was_drawn]
            versions += [int(value or 0) for value, was_drawn in zip(of_tokens, drawn, strict=True) if was_drawn]
            numbers += [number] * sum(drawn)
            allowed.append(self._masks.drawn_from(self._schemas[written, step.forced], output.token_ids, output.forced))
        return PlayedSequence(
            Sequence(
                np.array(ids), np.array(learn, dtype=np.bool_), self._pictures(episode.id, ids, pngs, picture), "played"
            ),
            np.array(engine, np.float32),
            np.array(versions, np.int64),
            np.array(numbers, np.int64),
            np.concatenate(allowed),
            tuple(step.observation.image or str(step.index) for step in steps),
        )

    def _shown(self, episode: Episode, stored: Callable[[str], bytes]) -> list[list[bytes]]:
        """The pictures that were new at each step; where its prompt was written anew, all that it showed."""

        def image(seen: object) -> bytes | None:
            digest = getattr(seen, "image", None)
            return None if digest is None else stored(digest)

        said: list[Message] = []
        shown: list[list[bytes]] = []
        for step, new in zip(
            episode.steps, conversation(self._format, episode.task.text, episode.steps, image), strict=True
        ):
            told = self._format.history([*said, *new]) if self._format.windowed else new
            shown.append([message.image for message in told if message.image is not None])
            said += [*new, Message("assistant", step.output.text if step.output is not None else "")]
        return shown

    def _pictures(
        self, episode_id: str, ids: list[int], pngs: ListOf[bytes], picture: ToPicture
    ) -> tuple[Picture, ...]:
        """What stands where the image tokens are, in order."""
        vision = self._config.vision
        if vision is None:
            return ()
        pictures = tuple(map(picture, pngs))
        places, needed = ids.count(vision.image_token_id), sum(image_tokens(*p.size, vision) for p in pictures)
        if places != needed:
            raise ExampleError(f"{episode_id} has {places} image tokens, and its screenshots need {needed}")
        return pictures

    def _picture(self, png: bytes) -> Picture:
        assert self._config.vision is not None
        return Picture(png, image_size(png), self._config.vision)


def _recorded(episode_id: str, step: Step) -> ModelOutput:
    output = step.output
    if output is None or None in (output.prompt_ids, output.token_ids, output.logprobs, output.forced):
        raise ExampleError(
            f"step {step.index} of {episode_id} lacks tokens or log-probabilities; only what an engine in the "
            "trainer's process drew can be learned from here"
        )
    return output
