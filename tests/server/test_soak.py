"""Six seconds of what `make soak` does for half an hour."""

import asyncio
import os

from .live import serving
from .soak import soak


def test_two_hundred_clients_for_six_seconds(checkpoint):
    with serving(checkpoint) as live:  # of its own: at the end no session may be left
        pids = [os.getpid(), live.state.client.pid]
        for seconds in (6, 60):  # longer where the machine is busy
            report = asyncio.run(soak(live.url, pids, clients=200, seconds=seconds))
            if report["requests"] > 100:
                break
    assert report["errors"] == {}
    assert report["requests"] > 100
    assert report["counts"]["left early"] > 0
    assert report["open_sessions_after"] == report["turns_after"] == report["running_after"] == 0
    assert report["engine_failures"] == 0
    # Half an hour shows more; this only catches what grows with every request.
    assert all(growth < 1.25 for growth in report["memory_growth"].values())
