"""A session on its way from one engine to another of the same model: a head, which says what follows, and buffers.

Host memory is read and filled where it lies. How the buffers get there is socket_transfer.py's business.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from holotron.engine.engine_loop import EngineLoop
from holotron.engine.errors import EngineError, SessionBusy
from holotron.engine.images import ImageFile, ImageSpan
from holotron.engine.offload import OffloadedSession
from holotron.engine.session_state import OffloadedCheckpoint, OnUpdate, SessionState, Turn

MOST_CHECKPOINTS = 256
MOST_FILE = 2**28  # bytes of an image's file

Post = Callable[[Callable[[], Any]], Future[Any]]  # has something run on the engine's thread
Send = Callable[[bytes, list[memoryview]], object]  # returns once the other engine has the session
Fill = Callable[[list[memoryview]], object]


class SessionDamaged(EngineError):
    """The bytes of a session are not those that were sent."""


@dataclass(eq=False)
class DetachedSession:
    """A session that belongs to no engine: one that left, until it is known to have arrived, or one that arrives."""

    state: SessionState
    adapter: str | None
    resident: bool  # its memory was on the device
    memory: list[OffloadedSession] = field(default_factory=list)  # its own copy, then those of its checkpoints


# ---- on the engine's thread ----


def detach(loop: EngineLoop, session: SessionState) -> DetachedSession:
    """Take an idle session out of the engine, with its memory in host memory."""
    loop.check_idle(session)
    name = loop.model.adapters.name(session.adapter) if loop.model.adapters else None
    if session.adapter and loop.adapter_number(name) != session.adapter:
        raise EngineError(
            f"the session {session.id!r} has an earlier adapter {name!r}, which other engines do not have"
        )
    if session.waits_for is not None:
        raise SessionBusy(f"the session {session.id!r} is a fork whose beginning is still being computed")
    detached = DetachedSession(session, name, session.slot is not None)
    if session.slot is not None:
        loop.memory.evict(session, leaving=True)
    elif session.offloaded is not None:
        loop.memory.offload_store.hold(session.offloaded)
    del loop.sessions[session.id]
    if session.offloaded is not None:
        detached.memory = [session.offloaded, *(kept.offloaded for kept in session.offloaded_checkpoints)]
    return detached


def attach(loop: EngineLoop, detached: DetachedSession) -> SessionState:
    """Give the engine a session that came, or that could not leave; its memory comes back to where it was."""
    session = detached.state
    try:
        check_takes(loop, session.id, detached.adapter, len(session.tokens), session.epoch)
    except ValueError:
        discard(loop, detached)
        raise
    session.adapter = loop.adapter_number(detached.adapter)
    loop.sessions[session.id] = session
    for part in detached.memory:
        loop.memory.offload_store.release_hold(part)
    if session.offloaded is None and session.computed:
        loop.memory.free(session, recompute=True)
    if session.epoch != loop.epoch and session.on_update is not OnUpdate.KEEP:
        loop.memory.free(session, recompute=True)
        session.epoch = loop.epoch
    if detached.resident:
        loop.resume(session)
    return session


def check_takes(loop: EngineLoop, id_: str, adapter: str | None, tokens: int, epoch: int) -> None:
    """EngineError where the engine cannot have such a session."""
    if id_ in loop.sessions:
        raise EngineError(f"a session {id_!r} exists already")
    loop.adapter_number(adapter)
    loop.check_length(tokens)
    if epoch > loop.epoch:
        problem = f"the session {id_!r} remembers weights of epoch {epoch}"
        raise EngineError(f"{problem}, and this engine has those of {loop.epoch}; update it first")


def discard(loop: EngineLoop, detached: DetachedSession) -> None:
    """Free what a session takes that has arrived elsewhere."""
    for part in detached.memory:
        loop.memory.offload_store.free(part)
    detached.memory = []
    detached.state.closed = True


# ---- on any other ----


def write_session(loop: EngineLoop, post: Post, detached: DetachedSession) -> tuple[bytes, list[memoryview]]:
    """What a session is sent as: a head, and the buffers that follow. Those of its memory are not copied."""
    session, store = detached.state, loop.memory.offload_store
    post(store.copied).result().synchronize()
    files = [_file_of(span) for span in session.images]
    memory = [store.views(part) for part in detached.memory]
    if memory and memory[0] is None:  # lost on disk: computed again where it goes
        memory = []
    kept = [c for c, views in zip(session.offloaded_checkpoints, memory[1:], strict=False) if views is not None]
    logits = [_on_host(tensor) for tensor in (session.logits, *(c.logits for c in kept))]
    head = {
        "layout": layout(loop),
        "id": session.id,
        "on_update": session.on_update.value,
        "keep_images": session.keep_images,
        "pool": session.pool,
        "adapter": detached.adapter,
        "epoch": session.epoch,
        "computed": session.computed if memory else 0,
        "dropped": session.dropped if memory else 0,
        "dropped_before": session.dropped_before if memory else 0,
        "resident": detached.resident,
        "tokens": len(session.tokens),
        "turns": [list(asdict(turn).values()) for turn in session.turns],
        "images": [
            [span.start, span.tokens, span.key.hex(), span.grid, span.shift, len(file)]
            for span, file in zip(session.images, files, strict=True)
        ],
        "memory": [part.nbytes for part, views in zip(detached.memory, memory, strict=False) if views is not None],
        "checkpoints": [c.position for c in kept],
        "logits": [None if t is None else [str(t.dtype).removeprefix("torch."), t.numel()] for t in logits],
    }
    parts = [memoryview(session.tokens).cast("B"), *(memoryview(file) for file in files)]
    parts += [_bytes_of(tensor) for tensor in logits if tensor is not None]
    parts += [_bytes_of(view) for views in memory if views is not None for view in views]
    return json.dumps(head).encode(), parts


def read_session(
    loop: EngineLoop, post: Post, words: bytes, fill: Fill, image_file: Callable[[bytes], ImageFile]
) -> DetachedSession:
    """A session from a head and what `fill` fills buffers with.

    EngineError, before anything is filled, where it does not fit this engine or the head makes no sense.
    """
    with _sensible():
        head = json.loads(words)
        check_layout(head["layout"], layout(loop))
        post(partial(check_takes, loop, head["id"], head["adapter"], head["tokens"], head["epoch"])).result()
        _check_sizes(loop, head)
        tokens = array("i", bytes(4 * head["tokens"]))
        files = [bytearray(image[5]) for image in head["images"]]
        logits = [None if t is None else torch.empty(t[1], dtype=getattr(torch, t[0])) for t in head["logits"]]
        state = SessionState(head["id"], OnUpdate(head["on_update"]), head["keep_images"], 0, head["pool"])
        state.turns = [Turn(*turn) for turn in head["turns"]]
        keys = [bytes.fromhex(image[2]) for image in head["images"]]
    store = loop.memory.offload_store
    memory: list[OffloadedSession | None] = [post(partial(store.reserve, nbytes)).result() for nbytes in head["memory"]]
    detached = DetachedSession(state, head["adapter"], head["resident"], [part for part in memory if part is not None])
    try:
        post(store.copied).result().synchronize()  # what lay there before may still be on its way to the device
        parts = [memoryview(tokens).cast("B"), *(memoryview(file) for file in files)]
        parts += [_bytes_of(tensor) for tensor in logits if tensor is not None]
        for nbytes, part in zip(head["memory"], memory, strict=True):
            views = None if part is None else store.views(part)
            parts += [memoryview(bytearray(nbytes))] if views is None else list(map(_bytes_of, views))
        fill(parts)
    except BaseException:
        post(lambda: discard(loop, detached)).result()
        raise
    state.tokens, state.epoch = tokens, head["epoch"]
    for (start, count, _, grid, shift, _), key, file in zip(head["images"], keys, files, strict=True):
        span = ImageSpan(start, count, key, image_file(bytes(file)), shift=shift)
        span.grid = None if grid is None else (grid[0], grid[1])
        state.images.append(span)
    on_device = [None if tensor is None else tensor.to(loop.model.device) for tensor in logits]
    if memory and memory[0] is not None:
        state.computed, state.dropped = head["computed"], head["dropped"]
        state.dropped_before, state.logits = head["dropped_before"], on_device[0]
        state.offloaded = memory[0]
        state.offloaded_checkpoints = [
            OffloadedCheckpoint(position, part, known)
            for position, part, known in zip(head["checkpoints"], memory[1:], on_device[1:], strict=True)
            if part is not None
        ]
    elif detached.memory:  # checkpoints are of no use without the keys and values
        for part in detached.memory:
            post(partial(store.free, part)).result()
        detached.memory = []
    return detached


@contextmanager
def _sensible() -> Iterator[None]:
    """SessionDamaged where a head lacks something or has it in another form."""
    try:
        yield
    except EngineError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise SessionDamaged(f"the head of a session makes no sense: {error!r}") from error


def _check_sizes(loop: EngineLoop, head: dict[str, Any]) -> None:
    """Whether the memory is as large as its tokens want, and nothing else larger than it can be."""
    memory, entries = loop.runner.memory, head["computed"] - head["dropped"]
    sizes = [memory.slot_bytes + loop.memory.pages_for(entries) * memory.page_bytes]
    sizes += [memory.slot_bytes] * len(head["checkpoints"])
    if (
        not 0 <= entries <= head["computed"] <= head["tokens"]
        or head["memory"] != (sizes if head["memory"] else [])
        or not all(0 <= position <= head["computed"] for position in head["checkpoints"])
        or len(head["checkpoints"]) > MOST_CHECKPOINTS
        or len(head["logits"]) != 1 + len(head["checkpoints"])
        or any(known is not None and known[1] != loop.model.config.vocab_size for known in head["logits"])
        or sum(image[1] for image in head["images"]) > head["tokens"]
        or any(image[5] > MOST_FILE for image in head["images"])
    ):
        raise SessionDamaged("the sizes in the head of a session do not fit together; it is not taken")


def layout(loop: EngineLoop) -> dict[str, Any]:
    """What two engines must have in common for one to go on with a session of the other."""
    memory, config = loop.runner.memory, loop.model.config
    return {
        "model": config.name,
        "model configuration": blake2b(repr(config).encode(), digest_size=16).hexdigest(),
        "type of the weights": str(loop.model.dtype),
        "type of the states": str(memory.ssm_VMHPN.dtype),
        "type of keys and values": str(memory.keys_ANKZD.dtype),
        "page size": loop.config.page_size,
        "bytes of a state": memory.slot_bytes,
        "bytes of a page": memory.page_bytes,
    }


def check_layout(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """EngineError names the first thing that differs."""
    for name, value in ours.items():
        if theirs.get(name) != value:
            raise EngineError(
                f"the session comes from an engine whose {name} is {theirs.get(name)}, and here it is {value}; "
                "sessions move between engines of the same model and memory only"
            )


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.view(torch.uint8).numpy().data.cast("B")


def _on_host(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().cpu().contiguous()


def _file_of(span: ImageSpan) -> bytes:
    if not isinstance(span.again, ImageFile):
        raise EngineError("an image of the session was given as patches; only those given as files or pixels can move")
    return span.again.file()
