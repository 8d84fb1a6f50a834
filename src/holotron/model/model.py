"""The policy as one module: vision tower, projector and decoder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from holotron.model.batch import Batch, Memory
from holotron.model.checkpoint.source import CheckpointSource
from holotron.model.config import ModelConfig, QwenVisionConfig
from holotron.model.decoder import Decoder
from holotron.model.errors import ModelError
from holotron.model.grids import Grid
from holotron.model.mrope import positions_of_sequence
from holotron.model.qwen_vision import QwenVisionTower
from holotron.model.tiling import ProcessedImage
from holotron.model.vision import Projector, VisionTower, pixel_shuffle

if TYPE_CHECKING:
    from holotron.model.adapters import AdapterSet


class Model(nn.Module):
    """A policy. `vision` and `projector` are None for a text-only one; Qwen's tower needs no projector.

    An image token's embedding is as wide as the decoder and, with deepstack, once as wide again for each layer of it.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.source: CheckpointSource | None = None
        self.adapters: AdapterSet | None = None
        self.vision: VisionTower | QwenVisionTower | None = None
        self.projector: Projector | None = None
        if isinstance(config.vision, QwenVisionConfig):
            self.vision = QwenVisionTower(config.vision, config.hidden_size)
        elif config.vision is not None:
            self.vision = VisionTower(config.vision)
            self.projector = Projector(config.vision, config.hidden_size)
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
        """Token embeddings of each image."""
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
        if self.vision is None:
            raise ModelError(f"{self.config.name} has no vision tower; use a vision-language model to give it images")
        features = self.vision(patches, grids)
        if self.projector is None:
            return features
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
        return x_TD.masked_scatter(places[:, None], embeddings[:, : x_TD.shape[1]])

    def deepstack(self, token_ids_T: Tensor, images: Sequence[Tensor]) -> Tensor | None:
        """deepstack_KTD of the decoder: what images bring beside their embeddings, and zeros elsewhere."""
        if not images or not self.config.deepstack_layers:
            return None
        assert self.config.vision is not None
        places_T = token_ids_T == self.config.vision.image_token_id
        _, *layers = torch.cat(list(images)).chunk(1 + self.config.deepstack_layers, dim=1)
        nothing_TD = layers[0].new_zeros(len(token_ids_T), layers[0].shape[1])
        return torch.stack([nothing_TD.masked_scatter(places_T[:, None], layer) for layer in layers])

    def forward(
        self, token_ids_T: Tensor, batch: Batch, memory: Memory | None = None, images: Sequence[Tensor] = ()
    ) -> Tensor:
        """Hidden states of the new tokens; `decoder.logits` turns the wanted rows into logits."""
        deepstack_KTD = self.deepstack(token_ids_T, images)
        return self.decoder(self.embed(token_ids_T, images), batch, memory, deepstack_KTD=deepstack_KTD)

    def score(
        self, sequences: Sequence[Sequence[int]], images: Sequence[Tensor] = (), grids: Sequence[Grid] = ()
    ) -> list[Tensor]:
        """Logits of whole sequences, [length, vocabulary] each; nothing is remembered.

        Where images have positions of their own, `grids` are those of the images.
        """
        batch = Batch.fresh([len(sequence) for sequence in sequences], self.device)
        token_ids = torch.tensor([i for sequence in sequences for i in sequence], device=self.device)
        if images and self.config.uses_mrope:
            batch = replace(batch, positions_T=self._positions(sequences, grids))
        logits = self.decoder.logits(self(token_ids, batch, images=images))
        return list(logits.split([len(sequence) for sequence in sequences]))

    def _positions(self, sequences: Sequence[Sequence[int]], grids: Sequence[Grid]) -> Tensor:
        """[3, T]: image tokens lie in the grids, which come in order."""
        assert self.config.vision is not None
        image_token, remaining = self.config.vision.image_token_id, iter(grids)
        parts = [torch.from_numpy(positions_of_sequence(ids, image_token, remaining)) for ids in sequences]
        return torch.cat(parts, dim=1).to(self.device)
