"""The installed command starts here; `shunter.flows.command.cli` holds it."""

import atexit
import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType


def main() -> None:
    """Entry point of the command: signals end it with one sentence, from the first moment on."""
    open_streams()
    take_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name in a log may hold letters that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    ending = Ending()
    try:
        from shunter.flows.command.cli import app

        app(prog_name="shunter")
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            print("Interrupted.", file=sys.stderr)
        ending.status = 128 + signal.SIGINT
        raise SystemExit(ending.status) from None
    except SystemExit as ended:
        ending.status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise


class Output(io.TextIOWrapper):
    """Standard output whose failures are told apart from those of files."""

    def write(self, text: str) -> int:
        """Write a text.

        Raises:
            OutputError: Nothing can be written.
        """
        with _output_errors():
            return super().write(text)

    def flush(self) -> None:
        """Write what is held back; raises as `write`."""
        with _output_errors():
            super().flush()


@contextlib.contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        from shunter.errors import OutputError

        raise OutputError(error) from error


def open_streams() -> None:
    """Open standard streams that are closed, such that no file that is opened later gets what is printed.

    Reading finds nothing, and writing fails as it does on a closed stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # gets the lowest number that is free
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115
    was = sys.stdout
    binary = open(1, "wb", closefd=False)  # noqa: SIM115
    at_once = bool(was.line_buffering or getattr(was, "write_through", False))
    sys.stdout = Output(binary, was.encoding, was.errors, None, at_once)


def take_signals() -> None:
    """Let SIGTERM, the end of the terminal (SIGHUP) and SIGQUIT end the command as Ctrl-C does.

    SIGTERM raises KeyboardInterrupt until Prefect takes the signal over. The other two become a Ctrl-C, so that whoever
    handles that at the moment handles them; where they are ignored, as `nohup` has it, they stay so.
    """
    own = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:  # a child that was forked ends as if nobody had asked to be told
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if number == signal.SIGTERM:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


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
        from shunter.errors import OutputError

        try:
            sys.stdout.flush()
        except OutputError as error:
            self.status = self.status or error.exit_code
            with contextlib.suppress(OSError):
                print("" if error.is_read_no_more else f"Error: {error}\n", end="", file=sys.stderr)
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(self.status)


if __name__ == "__main__":
    main()
