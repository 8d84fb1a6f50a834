"""Runs the model over the sessions of one step: builds the batch, keeps the page table, replays CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holotron.engine.config import EngineConfig
from holotron.engine.drawn_tokens import UnreadTokens
from holotron.engine.offload import as_bytes
from holotron.engine.session_state import SessionState
from holotron.model.batch import Batch, Memory
from holotron.model.model import Model
from holotron.model.mrope import mrope_positions
from holotron.ops import Packing
from holotron.ops.recording import record, wait_for_device

# Decode batches are padded to one of these, so that a handful of graphs covers every size.
BUCKETS = (1, 2, 4, 8, 12, 16, *range(24, 128, 8), *range(128, 256, 32), *range(256, 513, 64))

# On a CPU a layer of fewer parameters is sooner done with by one core than by several that have to be woken for each of
# its operations: 13 ms a token instead of 23 with two for holotron-nano, whose layers have a quarter of this.
SMALL_LAYER = 4_000_000
ROWS_SCORED = 256  # at once: their logits are as wide as the vocabulary


@dataclass(frozen=True)
class PrefillChunk:
    """The next `count` uncomputed tokens of a session."""

    session: SessionState
    count: int
    score: Callable[[Tensor], None] | None = None  # is given the logits of its rows, some at a time


@contextmanager
def one_thread() -> Iterator[None]:
    """What this thread computes inside, it computes alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Runner:
    """Owns the memory that sessions live in, and advances it."""

    def __init__(self, model: Model, config: EngineConfig) -> None:
        self.model = model
        self.config = config
        self.device = model.device
        self.memory = self._allocate(self.device)
        self._table = self._allocate_table(self.device)
        self._new_pages: dict[int, int] = {}  # by place in the table: told to the device with the next step
        self._graphs: dict[tuple[int, bool], DecodeGraph] = {}  # by rows, and whether any of them has an adapter
        parameters = sum(parameter.numel() for parameter in model.decoder.parameters())
        self._is_small = self.device.type == "cpu" and parameters < SMALL_LAYER * len(model.config.pattern)

    def _allocate(self, device: torch.device) -> Memory:
        return Memory.allocate(
            self.model.config,
            slots=self.config.slots,
            pages=self.config.pages,
            page_size=self.config.page_size,
            device=device,
            dtype=self.model.dtype,
            state_dtype=self.config.state_dtype,
            kv_dtype=self.config.kv_dtype,
        )

    def _allocate_table(self, device: torch.device) -> Tensor:
        # Row = slot: a session's pages change once per page_size tokens, so this is not rebuilt every step.
        return torch.zeros(self.config.slots, self.config.pages_per_session, dtype=torch.int32, device=device)

    def forget_graphs(self) -> None:
        """Record decode steps again, which hold on to the layers as they were."""
        self._graphs.clear()

    def release(self, *, weights: bool = False) -> None:
        """Give back the room of pools and graphs, and of the weights if asked to. What is in the pools is lost."""
        self.forget_graphs()
        if self.device.type == "cuda":
            wait_for_device(self.device)  # copies to the host may still be reading
        self._new_pages.clear()
        nowhere = torch.device("meta")  # shapes without memory: sizes can still be asked for
        self.memory, self._table = self._allocate(nowhere), self._allocate_table(nowhere)
        if weights:
            self.model.to("cpu")
        if self.device.type == "cuda":
            torch._C._cuda_clearCublasWorkspaces()  # 32 MiB for every stream that ever ran the model
            torch.cuda.empty_cache()

    def restore(self) -> None:
        """Take it all again; an error leaves things as `release` left them."""
        self.model.to(self.device)
        self.memory, self._table = self._allocate(self.device), self._allocate_table(self.device)

    # ---- memory ----

    def set_pages(self, slot: int, pages: list[int], start: int = 0) -> None:
        """Note which pages a slot has, from page number `start` on."""
        row = slot * self.config.pages_per_session
        self._new_pages.update(zip(range(row + start, row + len(pages)), pages[start:], strict=True))

    def _tell_pages(self) -> None:
        """Bring the device's table up to date, by one copy for all sessions."""
        if self._new_pages:
            changes = np.array([list(self._new_pages), list(self._new_pages.values())])
            places, pages = self._to_device(torch.from_numpy(changes)).unbind()
            self._table.view(-1).index_copy_(0, places, pages.int())
            self._new_pages.clear()

    def _to_device(self, values: Tensor) -> Tensor:
        return values.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else values

    def clear_slot(self, slot: int) -> None:
        self.memory.ssm_VMHPN[slot].zero_()
        self.memory.conv_VMCJ[slot].zero_()

    def copy_slot(self, source: int, target: int) -> None:
        self.memory.ssm_VMHPN[target].copy_(self.memory.ssm_VMHPN[source])
        self.memory.conv_VMCJ[target].copy_(self.memory.conv_VMCJ[source])

    def copy_pages(self, sources: list[int], targets: list[int]) -> None:
        pairs = self._to_device(torch.tensor([sources, targets]))
        for pool in map(as_bytes, (self.memory.keys_ANKZD, self.memory.values_ANKZD)):
            pool.index_copy_(1, pairs[1], pool.index_select(1, pairs[0]))

    # ---- forward ----

    @torch.inference_mode()
    def run(self, decode: list[SessionState], prefill: list[PrefillChunk], drawn: UnreadTokens | None = None) -> Tensor:
        """Advance these sessions; logits after the last token of each, decode first.

        Sessions that decode take their tokens from `drawn` where the host has not read them.
        """
        self._tell_pages()
        if not prefill and self._graphed(len(decode)):
            return self._graph_of(*_graph_key(decode)).replay(decode, drawn)[: len(decode)]
        numbers = self._numbers(decode, prefill)
        if drawn is not None:
            self.take_drawn(numbers.tokens, decode, drawn)
        lengths = tuple(chunk.session.entries + chunk.count for chunk in prefill)
        batch = self._batch(numbers, len(decode), tuple(chunk.count for chunk in prefill), lengths)
        tokens_T = numbers.tokens
        if (vision := self.model.config.vision) and vision.image_token_id >= self.model.config.vocab_size:
            tokens_T = tokens_T.masked_fill(tokens_T == vision.image_token_id, 0)  # there is nothing to look up for it
        x_TD = self.model.decoder.embeddings(tokens_T)
        deepstack_KTD = self._splice_images(x_TD, decode, prefill)
        with self._adapted(numbers, decode, prefill), one_thread() if self._is_small and not prefill else nullcontext():
            hidden_TD = self.model.decoder(x_TD, batch, self.memory, deepstack_KTD=deepstack_KTD)
            self._score(hidden_TD[len(decode) :], prefill)
            return self.model.decoder.logits(hidden_TD[numbers.last])

    def take_drawn(self, tokens_T: Tensor, decode: list[SessionState], drawn: UnreadTokens) -> None:
        """Put the tokens that only the device knows in their places, the first of these."""
        rows = torch.tensor(drawn.rows(decode))
        places = (rows >= 0).nonzero().squeeze(1)
        if not len(places):
            return  # those who wait for theirs have ended or were evicted; nothing is no tensor to pin
        pairs = self._to_device(torch.stack([places, rows[places]]))
        tokens_T[pairs[0]] = drawn.draw.token_ids_S[pairs[1]]

    def _score(self, hidden_TD: Tensor, prefill: list[PrefillChunk]) -> None:
        at = 0
        for chunk in prefill:
            for row in range(at, at + chunk.count if chunk.score else at, ROWS_SCORED):
                assert chunk.score is not None
                chunk.score(self.model.decoder.logits(hidden_TD[row : min(row + ROWS_SCORED, at + chunk.count)]))
            at += chunk.count

    def _numbers(self, decode: list[SessionState], prefill: list[PrefillChunk]) -> Numbers:
        """Everything the batch needs to know, laid out in one array so that it crosses to the device in one copy."""
        size = self.config.page_size
        rows = [step_numbers(session, size) for session in decode]
        tokens, positions, places, adapters, slots, lengths = ([column] for column in np.array(rows).reshape(-1, 6).T)
        axes = 3 if prefill and self.model.config.uses_mrope else 1
        if axes > 1:
            positions = [np.tile(positions[0], (axes, 1))]
        for chunk in prefill:
            session, count, start = chunk.session, chunk.count, chunk.session.computed
            tokens.append(np.array(session.tokens[start : start + count]))
            if axes > 1:
                images = [(span.start, span.grid) for span in session.images if span.grid is not None]
                positions.append(mrope_positions(start, count, images))
            else:
                positions.append(np.arange(start, start + count))
            places.append(places_of(session, session.entries, count, size))
            adapters.append(np.full(count, session.adapter))
            slots.append(np.array([session.slot]))
            lengths.append(np.array([session.entries + count]))
        last = np.cumsum([1] * len(decode) + [chunk.count for chunk in prefill]) - 1
        positions = [np.concatenate(positions, axis=-1).ravel()]
        parts = [*tokens, *positions, *places, *adapters, *slots, *lengths, last]
        flat = self._to_device(torch.from_numpy(np.concatenate(parts, dtype=np.int64, casting="unsafe")))
        sessions = len(decode) + len(prefill)
        total = (len(flat) - 3 * sessions) // (3 + axes)
        numbers = Numbers(*flat.split([total, axes * total, total, total] + [sessions] * 3))
        return numbers if axes == 1 else replace(numbers, positions=numbers.positions.view(axes, total))

    def _adapted(
        self, numbers: Numbers, decode: list[SessionState], prefill: list[PrefillChunk]
    ) -> AbstractContextManager[None]:
        """Inside, rows of sessions with an adapter are computed with it; where there are none, it costs nothing."""
        adapters = self.model.adapters
        sessions = (*decode, *(chunk.session for chunk in prefill))
        if adapters is None or not any(session.adapter for session in sessions):
            return nullcontext()
        return adapters.using(numbers.adapters)

    def _batch(
        self, numbers: Numbers, steps: int, counts: tuple[int, ...] = (), lengths: tuple[int, ...] = ()
    ) -> Batch:
        return Batch(
            Packing(counts, device=self.device) if counts else None,
            numbers.positions,
            steps=steps,
            slots_S=numbers.slots,
            page_table_SM=self._table[numbers.slots],
            places_T=numbers.places,
            kv_lengths_S=numbers.lengths,
            piece_lengths=lengths,
        )

    def _splice_images(self, x_TD: Tensor, decode: list[SessionState], prefill: list[PrefillChunk]) -> Tensor | None:
        """Image embeddings take the places of image tokens, by position: a generated image token stays a token.

        Returns deepstack_KTD, zeros but for images; None where there is nothing of the kind.
        """
        layers, width = self.model.config.deepstack_layers, x_TD.shape[1]
        deepstack_KTD: Tensor | None = None
        at = len(decode)
        for chunk in prefill:
            start, end = chunk.session.computed, chunk.session.computed + chunk.count
            for span in chunk.session.images:
                low, high = max(start, span.start), min(end, span.end)
                if low < high:
                    assert span.embeddings is not None
                    here = slice(at + low - start, at + high - start)
                    embeddings = span.embeddings[low - span.start : high - span.start]
                    x_TD[here] = embeddings[:, :width]
                    if layers:
                        if deepstack_KTD is None:
                            deepstack_KTD = x_TD.new_zeros(layers, *x_TD.shape)
                        deepstack_KTD[:, here] = embeddings[:, width:].unflatten(1, (layers, width)).transpose(0, 1)
            at += chunk.count
        return deepstack_KTD

    # ---- CUDA graphs ----

    def _graphed(self, count: int) -> bool:
        return self.config.cuda_graphs and self.device.type == "cuda" and 0 < count <= BUCKETS[-1]

    def is_recorded(self, decode: list[SessionState]) -> bool:
        """Whether a step in which these only decode needs no graph that must be recorded first."""
        return not self._graphed(len(decode)) or _graph_key(decode) in self._graphs

    @torch.inference_mode()
    def record_graphs(self, sessions: int, adapted: bool) -> None:
        """Record the graphs of so many decoding sessions now: it takes seconds, and disturbs threads that learn."""
        for rows in BUCKETS if self._graphed(1) else ():
            self._graph_of(rows, adapted)
            if rows >= sessions:
                break

    def _graph_of(self, rows: int, adapted: bool) -> DecodeGraph:
        key = (rows, adapted)
        if key not in self._graphs:
            self._graphs[key] = DecodeGraph(self, *key)
        return self._graphs[key]


def _graph_key(decode: list[SessionState]) -> tuple[int, bool]:
    return next(size for size in BUCKETS if size >= len(decode)), any(session.adapter for session in decode)


def step_numbers(session: SessionState, page_size: int) -> tuple[int, int, int, int, int, int]:
    """What a batch must know of a session that brings one token: as in Numbers, without the last."""
    start, pages = session.computed, session.pages
    entry = start - session.dropped
    place = pages[entry // page_size] * page_size + entry % page_size if pages else 0  # 0 without attention
    assert session.slot is not None
    return session.tokens[start], session.position, place, session.adapter, session.slot, entry + 1


def places_of(session: SessionState, entry: int, count: int, page_size: int) -> NDArray[np.int64]:
    if not session.pages:
        return np.zeros(count, dtype=np.int64)
    first = entry // page_size
    entries = np.arange(entry, entry + count)
    pages = np.array(session.pages[first : (entry + count - 1) // page_size + 1])
    return pages[entries // page_size - first] * page_size + entries % page_size


@dataclass(frozen=True)
class Numbers:
    """Views into the one array that describes a batch: what each token has, and then what each session has."""

    tokens: Tensor
    positions: Tensor
    places: Tensor
    adapters: Tensor
    slots: Tensor
    lengths: Tensor
    last: Tensor


class DecodeGraph:
    """A decode step of a fixed number of sessions, recorded once. Rows without a session use slot and page 0."""

    def __init__(self, runner: Runner, rows: int, adapted: bool) -> None:
        self._runner = runner
        self._rows = rows
        self._adapted = adapted
        self._input = torch.zeros(6 * rows, dtype=torch.long, device=runner.device)
        self._input[5 * rows :] = 1
        self._host = torch.zeros(6 * rows, dtype=torch.long).pin_memory()
        self._copied = torch.cuda.Event()
        # Slot 0 and page 0 take what the first run writes.
        self._graph, self._logits = record(self._forward, self._forward)

    def _forward(self) -> Tensor:
        tokens, positions, places, adapters_T, slots, lengths = self._input.split(self._rows)
        numbers = Numbers(tokens, positions, places, adapters_T, slots, lengths, tokens[:0])
        runner, adapters = self._runner, self._runner.model.adapters
        batch = runner._batch(numbers, self._rows)
        with adapters.using(numbers.adapters) if adapters and self._adapted else nullcontext():
            hidden = runner.model.decoder(runner.model.decoder.embeddings(numbers.tokens), batch, runner.memory)
            return runner.model.decoder.logits(hidden)

    def replay(self, decode: list[SessionState], drawn: UnreadTokens | None) -> Tensor:
        rows, size = self._rows, self._runner.config.page_size
        self._copied.synchronize()  # the copy of the last step must be done before its source is written again
        count = len(decode)
        assert count <= rows
        host = self._host.numpy().reshape(6, rows)
        host[:5, count:] = 0
        host[5, count:] = 1
        host[:, :count] = np.array([step_numbers(session, size) for session in decode]).T
        self._input.copy_(self._host, non_blocking=True)
        self._copied.record()
        if drawn is not None:
            self._runner.take_drawn(self._input, decode, drawn)
        self._graph.replay()
        return self._logits
