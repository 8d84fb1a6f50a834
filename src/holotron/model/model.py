"""The policy as one module: vision tower, projector and decoder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from holotron.model.batch import Batch, Memory
from holotron.model.checkpoint.source import CheckpointSource
from holotron.model.config import ModelConfig
from holotron.model.decoder import Decoder
from holotron.model.errors import ModelError
from holotron.model.grids import Grid
from holotron.model.tiling import ProcessedImage
from holotron.model.vision import Projector, VisionTower, pixel_shuffle

if TYPE_CHECKING:
    from holotron.model.adapters import AdapterSet


class Model(nn.Module):
    """A policy. `vision` and `projector` are None for a text-only one."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.source: CheckpointSource | None = None
        self.adapters: AdapterSet | None = None
        self.vision = VisionTower(config.vision) if config.vision else None
        self.projector = Projector(config.vision, config.hidden_size) if config.vision else None
        self.decoder = Decoder(config)

    @property
    def device(self) -> torch.device:
        return self.decoder.embeddings.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.decoder.embeddings.weight.dtype

    def using(self, adapter: str | None) -> AbstractContextManager[None]:
        """Inside, everything is computed with the adapter of that name; None is the model alone."""
        if self.adapters is None:
            if adapter is not None:
                raise ModelError(f"there is no adapter {adapter!r}: {self.config.name} was loaded without any")
            return nullcontext()
        return self.adapters.using(self.adapters.number(adapter) or None)

    def encode_images(self, images: Sequence[ProcessedImage]) -> list[Tensor]:
        """Token embeddings of each image, [tokens, hidden size]."""
        if not images:
            return []
        grids = [grid for image in images for grid in image.grids]
        patches = [image.patches for image in images if image.patches is not None]
        if len(patches) < len(images):
            raise ModelError("an image has no patches yet; make it with an ImageProcessor that is not on_device")
        tokens = self.encode_patches(torch.cat(patches).to(self.device), grids)
        parts = iter(tokens)
        return [torch.cat([next(parts) for _ in image.grids]) for image in images]

    def encode_patches(self, patches: Tensor, grids: Sequence[Grid]) -> list[Tensor]:
        """Token embeddings of each grid of normalised patches."""
        if self.vision is None or self.projector is None:
            raise ModelError(f"{self.config.name} has no vision tower; use a vision-language model to give it images")
        features = self.vision(patches, grids)
        shuffled = [pixel_shuffle(image, grid) for image, grid in zip(features, grids, strict=True)]
        tokens: Tensor = self.projector(torch.cat(shuffled))
        return list(tokens.split([len(image) for image in shuffled]))

    def embed(self, token_ids_T: Tensor, images: Sequence[Tensor] = ()) -> Tensor:
        """Embeddings of the tokens, with the images' in place of the image tokens, in order."""
        if not images:
            return self.decoder.embeddings(token_ids_T)
        assert self.config.vision is not None
        places = token_ids_T == self.config.vision.image_token_id
        # The image token may lie beyond the vocabulary: nothing is looked up for it.
        x_TD: Tensor = self.decoder.embeddings(token_ids_T.masked_fill(places, 0))
        embeddings = torch.cat(list(images)).to(x_TD.dtype)
        if (wanted := int(places.sum())) != len(embeddings):
            raise ModelError(f"the prompt has {wanted} image tokens, but the images give {len(embeddings)} embeddings")
        return x_TD.masked_scatter(places[:, None], embeddings)

    def forward(
        self, token_ids_T: Tensor, batch: Batch, memory: Memory | None = None, images: Sequence[Tensor] = ()
    ) -> Tensor:
        """Hidden states of the new tokens; `decoder.logits` turns the wanted rows into logits."""
        return self.decoder(self.embed(token_ids_T, images), batch, memory)

    def score(self, sequences: Sequence[Sequence[int]], images: Sequence[Tensor] = ()) -> list[Tensor]:
        """Logits of whole sequences, [length, vocabulary] each; nothing is remembered."""
        batch = Batch.fresh([len(sequence) for sequence in sequences], self.device)
        token_ids = torch.tensor([i for sequence in sequences for i in sequence], device=self.device)
        logits = self.decoder.logits(self(token_ids, batch, images=images))
        return list(logits.split([len(sequence) for sequence in sequences]))
