"""A process that forks rollouts on request, so that tests can kill them: a line of JSON in, a number out.

A rollout that ended is waited for only when its end is asked for: until then its pid is nobody else's.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import traceback
from typing import Any

from holotron.episodes.errors import StoreFull
from holotron.episodes.store import EpisodeStore
from holotron.episodes.transfer import export
from tests.episodes.faults import OPERATIONS, Operations, die
from tests.episodes.samples import roll_out

DONE, FULL = 0, 3


def serve() -> None:
    with tempfile.TemporaryDirectory() as folder:
        roll_out(EpisodeStore(folder, sync="never"), 60)  # what is loaded and made at the first use is there at once
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "end" in request:
            print(os.waitstatus_to_exitcode(os.waitpid(request["end"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            os._exit(run(request))
        print(pid, flush=True)


def run(request: dict[str, Any]) -> int:
    try:
        return _run(request)
    except BaseException:
        traceback.print_exc()
        return 1


def _run(request: dict[str, Any]) -> int:
    store = EpisodeStore(request["store"], sync=request.get("sync", "episode"))
    if request.get("file_bytes"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"], resource.RLIM_INFINITY))
    try:
        if request.get("export"):
            export(store, request["path"], request["export"])
        elif request.get("die_at"):
            with Operations(request["die_at"], die, OPERATIONS).watched():
                roll_out(store, request["tasks"])
        else:
            roll_out(store, request["tasks"])
    except StoreFull:
        return FULL
    return DONE


if __name__ == "__main__":
    serve()
