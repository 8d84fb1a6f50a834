"""Buffers of screenshots are not new pages every time."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest

from holotron.server.images import PIECE, _decode_piece

FAULTS = """
import resource
from holotron.server.memory import reuse_freed_memory
if {called}:
    reuse_freed_memory()
def screenshots(count):
    for _ in range(count):
        copies = [bytes(2_900_000) for _ in range(4)]
screenshots(5)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
screenshots(20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is told")
def test_freed_memory_is_used_again():
    without, within = (
        int(subprocess.run([sys.executable, "-c", FAULTS.format(called=called)], capture_output=True).stdout)
        for called in (False, True)
    )
    assert without > 1_000
    assert within < 100


def of_library(piece: str) -> bytes | str:
    try:
        return base64.b64decode(piece, validate=True)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize(
    "piece", ["", "YQ==", "YR==", "YQ=", "YQ", "=", "+/+/", "-_-_", "aGF=aGFs", "aG Fs", "é", "@@@@"]
)
def test_base64_is_read_as_the_library_reads_it(piece):
    try:
        found: bytes | str = _decode_piece(piece)
    except ValueError as error:
        found = str(error)
    assert found == of_library(piece)


def test_long_base64_is_what_it_was():
    data = bytes(range(256)) * 3000
    assert _decode_piece(base64.b64encode(data).decode()[:PIECE]) == data[: PIECE * 3 // 4]
