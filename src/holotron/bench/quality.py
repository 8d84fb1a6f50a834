"""What fewer bits change in a trained policy: log-probabilities and greedy tokens over recorded episodes.

Answers are scored as they were given: at each of their tokens both models have the same history.

Shapes: T tokens, V vocabulary.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.agent.policy_format import NANO, format_of
from holotron.bench.measuring import quantile
from holotron.bench.report import machine, print_figures
from holotron.episodes.selection import Selection
from holotron.episodes.views import View
from holotron.model.bf16_products import use_bf16_products
from holotron.model.fp8 import use_fp8
from holotron.model.heartbeat import to_stderr
from holotron.model.image import load_image
from holotron.model.loading import find_checkpoint, load
from holotron.model.model import Model
from holotron.model.text.chat_template import load_chat_template
from holotron.model.text.conversation import ConversationWriter
from holotron.model.text.tokenizer import load_tokenizer
from holotron.model.tiling import ImageProcessor
from holotron.train.sequences import Sequence, SequenceWriter

# By which the best token leads where it is a choice: coordinates are often within a hundredth of their neighbours.
CLEAR_LEAD = 0.1


@dataclass
class Differences:
    """Of every token of an answer: both log-probabilities, the divergence, and whether the best token is the same."""

    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    divergence: list[float] = field(default_factory=list)
    agrees: list[bool] = field(default_factory=list)
    lead: list[float] = field(default_factory=list)  # of the best token over the next, before
    answers: int = 0
    same_answers: int = 0

    def add(self, before_TV: Tensor, after_TV: Tensor, sequence: Sequence) -> None:
        """The scores of a sequence by both models; row t is of the token behind it."""
        learn = torch.from_numpy(sequence.learn)
        rows = learn.nonzero()[:, 0] - 1
        tokens = torch.from_numpy(sequence.token_ids)[learn]
        old, new = (F.log_softmax(logits_TV[rows].double(), -1) for logits_TV in (before_TV, after_TV))
        self.before += old.gather(1, tokens[:, None])[:, 0].tolist()
        self.after += new.gather(1, tokens[:, None])[:, 0].tolist()
        self.divergence += (old.exp() * (old - new)).sum(-1).tolist()
        top = old.topk(2).values
        self.lead += (top[:, 0] - top[:, 1]).tolist()
        agrees = old.argmax(-1) == new.argmax(-1)
        self.agrees += agrees.tolist()
        starts = torch.cat([torch.tensor([True]), rows.diff() > 1]).nonzero()[:, 0].tolist()
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            self.answers += 1
            self.same_answers += bool(agrees[start:end].all())

    def figures(self) -> dict[str, Any]:
        moved = [abs(new - old) for old, new in zip(self.before, self.after, strict=True)]
        count = max(len(moved), 1)
        clear = [same for lead, same in zip(self.lead, self.agrees, strict=True) if lead > CLEAR_LEAD]
        return {
            "answers": self.answers,
            "tokens": len(moved),
            "logprob_mean": sum(self.before) / count,
            "logprob_mean_rounded": sum(self.after) / count,
            "logprob_difference_mean": sum(moved) / count,
            "logprob_difference_p99": quantile(moved, 0.99),
            "logprob_difference_most": max(moved, default=0.0),
            "divergence_mean": sum(self.divergence) / count,
            "greedy_tokens_same": sum(self.agrees) / count,
            "clear_tokens": len(clear),
            "greedy_clear_tokens_same": sum(clear) / max(len(clear), 1),
            "greedy_answers_same": self.same_answers / max(self.answers, 1),
            # How clear the best token was where the other model has another.
            "lead_most_where_not_same": max(
                (lead for lead, same in zip(self.lead, self.agrees, strict=True) if not same), default=0.0
            ),
        }


@torch.no_grad()
def run(options: argparse.Namespace) -> dict[str, Any]:
    """`holotron bench quality`."""
    folder = find_checkpoint(options.model)
    dtype = torch.float32 if options.device == "cpu" else None
    whole = load(options.model, options.device, dtype)
    rounded = copy.deepcopy(whole)
    is_fp8 = options.bits == "fp8"
    (use_fp8 if is_fp8 else use_bf16_products)(rounded)
    writer = SequenceWriter(ConversationWriter(load_tokenizer(folder), load_chat_template(folder), whole.config))
    view = View([options.store], Selection(limit=options.episodes), policy_format=format_of(folder) or NANO)
    differences = Differences()
    for number in range(len(view)):
        sequence = writer.write(view[number])
        before, after = (
            _score(*models) for models in ((whole, sequence, whole), (rounded, sequence, whole if is_fp8 else rounded))
        )
        differences.add(before.cpu(), after.cpu(), sequence)
        if number % 10 == 0:
            to_stderr(f"{number} of {len(view)} examples")
    report = machine() | {"model": whole.config.name, "bits": options.bits} | differences.figures()
    if not options.json:
        print_figures(report, digits=4)
    return report


def _score(model: Model, sequence: Sequence, tower: Model) -> Tensor:
    """fp8 leaves the tower as it is: one model encodes the images for both."""
    if model.config.vision is None:
        return model.score([sequence.token_ids.tolist()])[0]
    process = ImageProcessor(model.config.vision)
    images = [process(load_image(picture.png)) for picture in sequence.pictures]
    grids = [grid for image in images for grid in image.grids]
    return model.score([sequence.token_ids.tolist()], tower.encode_images(images), grids)[0]
