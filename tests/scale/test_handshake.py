"""Only who knows the key gets as far as being read."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from holotron.scale.handshake import prove


@pytest.mark.parametrize(("keys", "both_prove"), [((b"key", b"key"), True), ((b"key", b"other"), False)])
def test_both_ends_must_know_the_key(keys, both_prove):
    ends = socket.socketpair(socket.AF_UNIX)

    def proves(number: int) -> bool:
        with ends[number] as end:
            try:
                prove(end, keys[number], front=number == 0)
            except (ValueError, OSError) as error:
                return not isinstance(error, ValueError)
            return True

    with ThreadPoolExecutor(2) as both:
        assert list(both.map(proves, (0, 1))) == [both_prove] * 2


def test_an_answer_cannot_be_played_back():
    """Who sends back what it is sent proves nothing: the two ends prove different things."""
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as beside:
        proving = beside.submit(prove, ours, b"key", front=False)
        theirs.sendall(theirs.recv(32))
        theirs.sendall(theirs.recv(32))
        with pytest.raises(ValueError, match="does not know the key"):
            proving.result()
