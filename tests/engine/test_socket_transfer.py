"""Sessions over real sockets that alter, cut or lose bytes: taken whole, or refused with both ends as they were."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from holotron.engine import socket_transfer
from holotron.engine.errors import EngineError
from holotron.engine.migration import SessionDamaged
from holotron.engine.session_state import Residency
from holotron.engine.socket_transfer import MoveFailed, pieces_of, receive_over, send_over
from tests.engine.driver import GREEDY
from tests.engine.invariants import check_loop
from tests.engine.outside import engine_for
from tests.model.tiny import draw_tokens, tiny_model

PIECE = 1000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(socket_transfer, "PIECE", PIECE)
    monkeypatch.setattr(socket_transfer.os, "cpu_count", lambda: 3)  # so many lanes


@pytest.fixture(scope="module")
def model():
    return tiny_model()


class Network:
    """Makes connections. What goes over the first, or over each of the lanes after it, is altered at a byte, or ends
    there."""

    def __init__(
        self, *, lanes: bool = False, at: int = -1, flip: int = 0, stop: bool = False, hang: bool = False
    ) -> None:
        self._arriving: queue.Queue[socket.socket] = queue.Queue()
        self._lanes, self._at, self._flip, self._stop, self._hang = lanes, at, flip, stop, hang
        self.made = 0

    def connect(self) -> socket.socket:
        ours, near = socket.socketpair()
        far, theirs = socket.socketpair()
        is_wrong = (self.made > 0) == self._lanes
        self.made += 1
        threading.Thread(target=self._carry, args=(near, far, is_wrong), daemon=True).start()
        threading.Thread(target=self._carry, args=(far, near, False), daemon=True).start()
        self._arriving.put(theirs)
        return ours

    def accept(self) -> socket.socket:
        try:
            return self._arriving.get(timeout=60)
        except queue.Empty:
            raise TimeoutError("no connection came") from None

    def _carry(self, source: socket.socket, target: socket.socket, is_wrong: bool) -> None:
        done = 0
        with suppress(OSError):
            while data := bytearray(source.recv(4096)):
                here = self._at - done
                if is_wrong and 0 <= here < len(data):
                    if self._hang:
                        return
                    data[here] ^= self._flip
                    if self._stop:
                        target.sendall(data[:here])
                        source.shutdown(socket.SHUT_RDWR)
                        break
                target.sendall(data)
                done += len(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def moved(home, away, session_id: str, network: Network) -> tuple[BaseException | None, BaseException | None]:
    """What went wrong at the sender and at the receiver."""
    with ThreadPoolExecutor(2) as both:
        ends = (
            both.submit(send_over, network.connect, home, session_id),
            both.submit(receive_over, network.accept, away),
        )
        return ends[0].exception(60), ends[1].exception(60)


def both_ways(model, network: Network, sent_error, received_error, match: str = "", after=lambda: None) -> None:
    """The move fails so; nothing is lost at either end, and the next one works and says the same."""

    async def main():
        with engine_for(model) as home, engine_for(model) as away:
            session, stays = home.open_session(), home.open_session()
            for each in (session, stays):
                await each.generate(draw_tokens(40), GREEDY)
            sender, receiver = moved(home, away, session.id, network)
            after()
            assert isinstance(sender, sent_error), sender
            assert isinstance(receiver, received_error), receiver
            assert match in str(sender)
            assert away.counters()["host_bytes"] == away.counters()["sessions"] == 0
            assert session.info.residency is Residency.GPU
            assert moved(home, away, session.id, Network()) == (None, None)
            there = away.session(session.id)
            expected = await stays.generate([7], GREEDY)
            assert (await there.generate([7], GREEDY)).token_ids == expected.token_ids
            assert away.counters()["recomputed_tokens"] == 0
            for engine in (home, away):
                check_loop(engine.loop)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("lanes", "at", "told"),
    [
        (False, 3, "not the bytes of a session"),
        (False, 100, "the head of a session was altered"),
        (True, 0, "no piece"),
        (True, 5, "was altered"),
        (True, 500, "was altered"),
    ],
)
def test_altered_bytes_are_refused_with_a_word(model, lanes, at, told):
    network = Network(lanes=lanes, at=at, flip=64)
    both_ways(model, network, MoveFailed, SessionDamaged, told)
    assert network.made <= 1 + 3


@pytest.mark.parametrize(("lanes", "at"), [(False, 5), (False, 60), (True, 3), (True, 700), (True, 1007)])
def test_a_sender_that_dies_takes_nothing(model, lanes, at):
    both_ways(model, Network(lanes=lanes, at=at, stop=True), MoveFailed, (EngineError, OSError))


@pytest.mark.parametrize("lanes", [False, True])
def test_an_end_that_says_nothing_more_is_given_up(model, monkeypatch, lanes):
    monkeypatch.setattr(socket_transfer, "SECONDS", 0.3)
    network = Network(lanes=lanes, at=70, hang=True)
    both_ways(
        model,
        network,
        MoveFailed,
        (EngineError, OSError),
        after=lambda: monkeypatch.setattr(socket_transfer, "SECONDS", 60.0),
    )


def test_a_session_without_memory_is_taken_though_both_words_arrive_at_once(model, monkeypatch):
    """Nothing follows "go on", so that "taken" may come in the same packet."""
    both_there = threading.Event()
    send = socket_transfer._hear

    def hear_late(*args) -> None:
        assert both_there.wait(60)
        send(*args)

    monkeypatch.setattr(socket_transfer, "_hear", hear_late)
    with engine_for(model) as home, engine_for(model) as away, ThreadPoolExecutor(2) as both:
        session, network = home.open_session(), Network()
        sender = both.submit(send_over, network.connect, home, session.id)
        both.submit(receive_over, network.accept, away).result(60)
        both_there.set()
        assert sender.result(60) > 0
        assert away.session(session.id).id == session.id


def test_a_piece_that_comes_twice_is_refused():
    parts = [memoryview(bytearray(PIECE * 2))]
    ours, theirs = socket.socketpair()
    piece = socket_transfer._NUMBERED.pack(0, socket_transfer.crc32(bytes(PIECE))) + bytes(PIECE)
    with ours, theirs:
        ours.sendall(2 * piece)
        with pytest.raises(SessionDamaged, match="came twice"):
            socket_transfer.take_pieces([theirs], parts)


def test_pieces_do_not_depend_on_how_the_bytes_are_cut():
    data = memoryview(bytes(range(250)) * 10)
    cuts = [[data], [data[:100], data[100 : PIECE + 3], data[PIECE + 3 :]], [data[:PIECE], data[PIECE:]]]
    joined = [[b"".join(piece) for piece in pieces_of(cut)] for cut in cuts]
    assert joined[0] == joined[1] == joined[2]
    assert [len(piece) for piece in joined[0]] == [PIECE, PIECE, 500]
