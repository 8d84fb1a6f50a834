"""The `holotron` script, and `python -m holotron`."""

import os
import signal


def main() -> None:
    # Commands take a third of a second to import, where an interrupt would be a traceback.
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # and not ignored, as in what a shell starts in the background
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from holotron.cli.main import main as run

    signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
