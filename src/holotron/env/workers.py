"""Worker processes that do not outlive the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time

SECONDS_TO_FINISH = 20.0


def end_with_parent() -> None:
    """For a worker to call when it begins: once its parent is gone, however that came, it is asked to end.

    A worker that handles SIGTERM can finish what it writes; after a while it is ended anyway.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_FINISH)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
