"""A supervised stage: batches in, a better policy out. Interrupted anywhere, it goes on from its last state."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holotron.agent.policy_format import NANO, format_of, save_format
from holotron.env.workers import stop_signals
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.initialize import random_model
from holotron.model.loading import find_checkpoint, load
from holotron.model.model import Model
from holotron.model.parameters import parameter_type, place
from holotron.model.presets import preset
from holotron.model.text.chat_template import ChatTemplate, load_chat_template
from holotron.model.text.conversation import ConversationWriter
from holotron.model.text.policy_tokenizer import policy_template, policy_tokenizer, save_policy_texts
from holotron.model.text.tokenizer import Tokenizer, load_tokenizer
from holotron.model.vision import VisionTower
from holotron.train.batches import Packer, TrainingBatch
from holotron.train.coordinate_jitter import CoordinateJitter
from holotron.train.cuda_graph import CudaGraphStep
from holotron.train.flops import peak_flops, training_flops
from holotron.train.forward import (
    compile_layers,
    compiled,
    encode_images,
    logits_of_learned,
    place_patches,
    prepare_patches,
)
from holotron.train.loader import BatchStream, Cursor, Drawn, load_batches
from holotron.train.lora import add_lora, merged, save_adapter
from holotron.train.loss import Coordinates, losses_of_learned
from holotron.train.ocr_loss import OcrHead, ocr_loss
from holotron.train.optimizer import Average, make_optimizers, trained
from holotron.train.parallel import join, shard, whole
from holotron.train.recipe import Recipe
from holotron.train.results import METRICS
from holotron.train.sequences import SequenceWriter
from holotron.train.state import NAME as STATE
from holotron.train.state import load_state, save_state

WEIGHTS = "weights"
ADAPTER = "adapter"


@dataclass
class Progress:
    """What is told while training, and written to metrics.jsonl. ocr_loss: of what is written where."""

    step: int
    steps: int
    loss: float
    rate: float
    gradient: float
    samples_per_second: float
    tokens_per_second: float
    images_per_second: float
    share_of_peak: float | None
    filled: float
    waited: float
    seconds: float
    kinds: dict[str, float] = field(default_factory=dict)
    ocr_loss: float | None = None


class Trainer:
    """One run of a recipe, in a folder of its own. Where torchrun started several processes, each has one of these."""

    def __init__(self, recipe: Recipe, out: Path, device: torch.device | str | None = None) -> None:
        self.recipe, self.out = recipe, out
        self.ranks, self.device = join(torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")))
        if recipe.compile and self.ranks.size > 1:
            raise TrainingError(
                f"compile = true is for one process, and this run has {self.ranks.size}; set it to false"
            )
        torch.manual_seed(recipe.seed)
        self.model, self.tokenizer, template = _start(recipe, self.device)
        if not isinstance(self.model.vision, VisionTower):
            raise TrainingError(
                f"{self.model.config.name} cannot be trained here: the supervised stages need a RADIO tower. They "
                "have neither the positions with three axes nor the deepstack features of Qwen's vision-language models"
            )
        self.model.train()
        self._ocr_head: OcrHead | None = None
        if recipe.ocr_loss:
            # A part of the model, it learns, is averaged and kept like the rest; what is exported has no place for it.
            self._ocr_head = OcrHead(self.model.config.hidden_size).to(self.device)
            self.model.add_module("ocr_head", self._ocr_head)
        self._token_losses, self._ocr_loss = losses_of_learned, ocr_loss
        if recipe.compile:
            compile_layers(self.model)
            self._token_losses, self._ocr_loss = compiled(losses_of_learned), compiled(ocr_loss)
        self._run: Callable[[TrainingBatch], tuple[Tensor, Tensor]] = self._losses
        if self.ranks.size > 1:
            shard(self.model, self._losses)
            self._run = self.model
        # Experts wait for the host to count their tokens, which a recording cannot.
        recorded = recipe.compile and self.device.type == "cuda" and self.model.config.moe is None
        self._cuda_graph = CudaGraphStep(self._sums_of_seen, trained(self.model).values()) if recorded else None
        self.coordinates = Coordinates.of(self.tokenizer, recipe.coordinate_sigma)
        self.optimizers = make_optimizers(self.model, recipe.optimizer)
        self.average = Average(self.model, recipe.optimizer.average)
        self.packer = Packer(self.model.config, recipe.batch)
        self.writer = SequenceWriter(ConversationWriter(self.tokenizer, template, self.model.config))
        self.step = 0
        self.cursors: dict[int, Cursor] = {}
        self._stopped = False

    def run(self, on_progress: Callable[[Progress], None] = lambda _: None) -> Path:
        """Train to the end and leave a checkpoint; its folder. A stopped run keeps its state and raises Interrupted."""
        self._check_folder()
        if (self.out / STATE).exists():
            self.step, self.cursors = load_state(self.out, self.model, self.optimizers, self.average, self.ranks)
        recipe, began = self.recipe, time.monotonic()
        meter = _Meter(self)
        with stop_signals(lambda *_: self.stop()):  # behind the step in hand
            batches = self._batches()
            while self.step < recipe.steps:
                with meter.waiting():
                    drawn = next(batches)
                losses, gradient = self._learn(drawn.batch)
                self.cursors[drawn.worker] = drawn.cursor
                self.step += 1
                meter.count(drawn, losses, gradient)
                if self.step % recipe.log_every == 0 or self.step == recipe.steps:
                    progress = meter.progress(began)
                    if self.ranks.first:
                        self._note(progress)
                        on_progress(progress)
                self._stopped = any(self.ranks.gather(self._stopped))  # one that is to stop stops them all
                if self._stopped or self.step % recipe.keep_every == 0:
                    self.keep()
                if self._stopped:
                    raise Interrupted(f"stopped after step {self.step} of {recipe.steps}; run it again to go on")
        self.keep()
        return self.export()

    def stop(self) -> None:
        """End behind the step in hand, with the state kept."""
        self._stopped = True

    def keep(self) -> None:
        save_state(self.out, self.step, self.model, self.optimizers, self.average, self.cursors, self.ranks)

    def export(self, folder: Path | None = None, dtype: torch.dtype = torch.bfloat16) -> Path:
        """The averaged weights as a checkpoint folder that the engine can load.

        Low-rank changes are added to the weights they belong to, and stand alone in a folder beside it, too.
        """
        folder = folder or self.out / WEIGHTS
        lora = self.recipe.lora
        with torch.device("meta"):
            model = Model(self.model.config)
        model.source = self.model.source
        changes = {name: whole(weights) for name, weights in self.average.weights.items()} if lora.rank else {}
        for name, _ in list(model.named_parameters()):
            weight = whole(self.average.weights.get(name, self.model.get_parameter(name)))
            if not self.ranks.first:
                continue
            if lora.rank:
                weight = merged(name, weight.detach(), changes, lora.scale)
            place(model, name, weight.to("cpu", parameter_type(name, dtype)))
        if self.ranks.first:
            save_checkpoint(model, folder, overwrite=True)
            if model.source is None:  # else it has kept its own
                save_policy_texts(model.config, folder)
            save_format((model.source and format_of(model.source.folder)) or NANO, folder)
            if lora.rank:
                save_adapter(model, changes, lora, folder.with_name(ADAPTER))
        return folder

    def _batches(self) -> Iterator[Drawn]:
        workers = self.recipe.workers
        turn = self.step % max(1, workers)
        stream = BatchStream(
            self.recipe.data,
            self.writer,
            self.packer,
            self.recipe.seed,
            max(1, workers),
            self.cursors,
            turn,
            self.ranks.rank,
            self.ranks.size,
            CoordinateJitter.of(self.tokenizer, jitter) if (jitter := self.recipe.coordinate_jitter) else None,
            self.recipe.folder,
        )
        return load_batches(stream, workers)

    def _learn(self, batch: TrainingBatch) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """One step: the losses of what is said and of what is written, and the norm of the gradient."""
        recipe = self.recipe
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate
        if self._cuda_graph:
            _, said, written = self._cuda_graph(batch, *self._see(batch))
        else:
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)
            total, said, written = self.losses(batch.to(self.device))
            total.backward()
        gradient = whole(torch.nn.utils.clip_grad_norm_(self.model.parameters(), recipe.optimizer.clip))
        for optimizer in self.optimizers:
            optimizer.step()
        self.average.update(self.model, self.step)
        return (self.ranks.mean(said.detach()), self.ranks.mean(written.detach())), gradient

    @property
    def rate(self) -> float:
        """The step size of the step that is next."""
        config = self.recipe.optimizer
        return config.rate * config.factor(self.step, self.recipe.steps)

    def losses(self, batch: TrainingBatch) -> tuple[Tensor, Tensor, Tensor]:
        """What is minimised, and what is said and what is written of it, each the mean of what is learned in a batch.

        With several ranks: a share of the loss such that its mean over the ranks is the mean over what all learn.
        Gradients are averaged over the ranks as well, so a rank with much to learn counts for more.
        """
        return self._sums(*self._run(batch), batch)

    def _sums(self, losses_N: Tensor, written: Tensor, batch: TrainingBatch) -> tuple[Tensor, Tensor, Tensor]:
        learned = self.ranks.mean(batch.weights_N.sum()).clamp_min(1.0 / self.ranks.size)
        said = (losses_N * batch.weights_N).sum() / learned
        return said + self.recipe.ocr_loss * written, said, written

    def _losses(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """The loss of each learned token, and that of what is written."""
        return self._losses_of_seen(batch, *self._see(batch))

    def _see(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """The patches of a batch and their positions, on the device."""
        tower, most = self.model.vision, self.recipe.batch.patches
        assert isinstance(tower, VisionTower)
        dtype = torch.bfloat16 if self._half else self.model.dtype
        patches = prepare_patches(batch, tower.config, most, self.device, dtype)
        return patches, place_patches(batch, tower, most)

    def _sums_of_seen(self, batch: TrainingBatch, patches_PV: Tensor, positions_PW: Tensor) -> tuple[Tensor, ...]:
        return self._sums(*self._losses_of_seen(batch, patches_PV, positions_PW), batch)

    def _losses_of_seen(self, batch: TrainingBatch, patches_PV: Tensor, positions_PW: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(self.device.type, torch.bfloat16) if self._half else nullcontext():
            images = encode_images(self.model, batch, patches_PV, positions_PW)
            logits = logits_of_learned(self.model, batch, images)
            losses = self._token_losses(logits, batch.targets_N, self.coordinates)
            if self._ocr_head is None:
                return losses, losses.new_zeros(())
            return losses, self._ocr_loss(self._ocr_head, images, batch.ocr_labels_YG)

    @property
    def _half(self) -> bool:
        return self.recipe.dtype == "bfloat16" and self.device.type == "cuda"

    def _check_folder(self) -> None:
        """A folder belongs to one recipe: going on with another would be a run of neither."""
        different = self.ranks.gather(self._claim_folder() if self.ranks.first else [])[0]
        if different:
            raise TrainingError(f"{self.out} holds a run of another recipe ({', '.join(different)} differ)")

    def _claim_folder(self) -> list[str]:
        """Write the recipe into the folder, or say in what it differs from the one that is there."""
        self.out.mkdir(parents=True, exist_ok=True)
        recipe = _plain(self.recipe)
        if self.ranks.size > 1:  # the order of the data depends on it
            recipe["ranks"] = self.ranks.size
        path = self.out / "recipe.json"
        if path.exists():
            before = json.loads(path.read_text(encoding="utf-8"))
            return sorted(key for key in before | recipe if before.get(key) != recipe.get(key))
        path.write_text(json.dumps(recipe, indent=1), encoding="utf-8")
        return []

    def _note(self, progress: Progress) -> None:
        with open(self.out / METRICS, "a", encoding="utf-8") as file:
            file.write(json.dumps(progress.__dict__) + "\n")


class TrainingError(RuntimeError):
    """A run that cannot go on as asked for."""


class Interrupted(RuntimeError):
    """A run that was asked to stop, and has kept its state."""


def _start(recipe: Recipe, device: torch.device) -> tuple[Model, Tokenizer, ChatTemplate]:
    """The model to begin with, its tokenizer and its chat template."""
    # What learns is in float32. Beside low-rank changes nothing else does, and a checkpoint may stay as it is stored;
    # CPUs without arithmetic of 16 bits are several times faster with 32.
    dtype = None if recipe.lora.rank and recipe.dtype == "bfloat16" else torch.float32
    if recipe.random:
        config = preset(recipe.start).config
        model = random_model(config, device, torch.float32, recipe.seed)
        tokenizer, template = policy_tokenizer(config), policy_template()
    else:
        folder = find_checkpoint(recipe.starting_point)
        model = load(folder, device, dtype)
        tokenizer, template = load_tokenizer(folder), load_chat_template(folder)
    if recipe.max_patches and model.vision is not None:
        model.vision.config = replace(model.vision.config, max_patches=recipe.max_patches)
        model.config = replace(model.config, vision=model.vision.config)
    if recipe.lora.rank:
        add_lora(model, recipe.lora, recipe.seed)
    else:
        model.float()
    return model, tokenizer, template


class _Meter:
    """Sums between two lines of the log, over all ranks. Reads a number off the device only when one is told."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._reset()

    def _reset(self) -> None:
        self._since, self._waited = time.monotonic(), 0.0
        self._measured: list[tuple[Tensor, ...]] = []  # the losses of what is said and written, and the gradient
        self._work: list[tuple[float, ...]] = []  # examples, tokens, images, and arithmetic
        self._kinds: Counter[str] = Counter()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time spent inside is time without a batch."""
        start = time.monotonic()
        yield
        self._waited += time.monotonic() - start

    def count(self, drawn: Drawn, losses: tuple[Tensor, Tensor], gradient: Tensor) -> None:
        batch, config = drawn.batch, self._trainer.model.config
        images = sum(map(len, batch.pixels))
        self._measured.append((*losses, gradient))
        self._work.append((batch.examples, batch.used_tokens, images, training_flops(config, batch)))
        self._kinds.update(kind.split("/")[0] for kind in drawn.kinds)

    def progress(self, began: float) -> Progress:
        trainer, recipe = self._trainer, self._trainer.recipe
        loss, written, gradient = (float(torch.stack(each).mean()) for each in zip(*self._measured, strict=True))
        if not math.isfinite(loss):
            raise TrainingError(f"the loss is {loss} at step {trainer.step}; take a smaller rate")
        seconds = max(1e-9, time.monotonic() - self._since)
        own = *map(sum, zip(*self._work, strict=True)), len(self._work), self._waited
        told = trainer.ranks.gather((own, self._kinds))
        examples, tokens, images, flops, batches, waited = map(sum, zip(*(sums for sums, _ in told), strict=True))
        kinds = sum((counts for _, counts in told), Counter[str]())
        # What frozen weights save is not counted, so there is no share to tell beside them.
        peak = None if recipe.lora.rank else peak_flops(trainer.device)
        progress = Progress(
            step=trainer.step,
            steps=recipe.steps,
            loss=loss,
            rate=trainer.rate,
            gradient=gradient,
            samples_per_second=examples / seconds,
            tokens_per_second=tokens / seconds,
            images_per_second=images / seconds,
            share_of_peak=None if peak is None else flops / seconds / (peak * trainer.ranks.size),
            filled=tokens / (batches * recipe.batch.tokens),
            waited=waited / (seconds * trainer.ranks.size),
            seconds=time.monotonic() - began,
            kinds={kind: count / kinds.total() for kind, count in sorted(kinds.items())},
            ocr_loss=written if recipe.ocr_loss else None,
        )
        self._reset()
        return progress


def _plain(recipe: Recipe) -> dict[str, Any]:
    """Without its folder, which may be moved."""
    value: dict[str, Any] = json.loads(json.dumps(asdict(replace(recipe, folder=Path())), default=str))
    return value
