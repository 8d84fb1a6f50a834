"""A server with replicas in threads and a journal, to be killed: python -m tests.scale.front CHECKPOINT JOURNAL"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from tests.scale.in_threads import in_threads
from tests.server.live import serving

if __name__ == "__main__":
    with serving(Path(sys.argv[1]), replicas=in_threads(1, Path(sys.argv[2])), admin_key="admin") as live:
        print(live.url, flush=True)
        threading.Event().wait()
