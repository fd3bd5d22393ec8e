"""The installed command starts here; `shunter.flows.command.cli` holds it."""

import atexit
import io
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name in a log may hold letters that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    ending = Ending()
    try:
        from shunter.flows.command.cli import app

        app(prog_name="shunter")
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        ending.status = 128 + signal.SIGINT
        raise SystemExit(ending.status) from None
    except SystemExit as ended:
        ending.status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise


class Ending:
    """Ends the process once every exit handler has run and all is written.

    The interpreter would take each object apart before, which takes seconds when torch and pandas are loaded.

    Attributes:
        status: What the process ends with; that of an unexpected error until another is known.
    """

    def __init__(self) -> None:
        self.status = 1
        self._process = os.getpid()
        atexit.register(self._end)  # handlers run from the last to the first

    def _end(self) -> None:
        if os.getpid() != self._process:
            return
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # whoever read is gone
                self.status = self.status or 1
        os._exit(self.status)


if __name__ == "__main__":
    main()
