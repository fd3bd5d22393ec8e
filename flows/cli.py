"""The installed command starts here; `flows.command.cli` holds it."""

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Entry point of the command: Ctrl-C and SIGTERM end it with one sentence, from the first moment on."""
    own = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:  # a child that was forked ends as if nobody had asked to be told
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        from flows.command.cli import app

        app(prog_name="shunter")
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None


if __name__ == "__main__":
    main()
