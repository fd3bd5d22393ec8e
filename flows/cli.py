"""Entry point of the installed command, which is defined in `shunter.flows.command.cli`."""

import atexit
import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType


def main() -> None:
    """Run the command; from the start on, a signal ends the command with a message of one sentence."""
    open_streams()
    take_signals()
    sys.excepthook = print_traceback
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name in a log may have characters that the terminal cannot show
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


def print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error, or of any error with `--debug`, without its secrets."""
    from shunter.secrets import without_secrets

    with contextlib.suppress(OSError):
        sys.stderr.write(without_secrets("".join(traceback.format_exception(kind, error, trace))))


class Output(io.TextIOWrapper):
    """Standard output that raises `OutputError`, so that its errors differ from those of files."""

    def write(self, text: str) -> int:
        """Write a text.

        Raises:
            OutputError: The stream cannot be written to.
        """
        with _output_errors():
            return super().write(text)

    def flush(self) -> None:
        """Write buffered text; for errors see `write`."""
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
    """Open closed standard streams, so that no file opened later gets their file descriptor and the printed text.

    Reading returns nothing, and writing fails as on a closed stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # gets the lowest free file descriptor
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115
    was = sys.stdout
    binary = open(1, "wb", closefd=False)  # noqa: SIM115
    at_once = bool(was.line_buffering or getattr(was, "write_through", False))
    sys.stdout = Output(binary, was.encoding, was.errors, None, at_once)


def take_signals() -> None:
    """Make SIGTERM, SIGHUP (the terminal was closed) and SIGQUIT end the command like Ctrl-C.

    SIGTERM raises KeyboardInterrupt until Prefect installs its own handler. SIGHUP and SIGQUIT are forwarded as SIGINT,
    so that the current handler of Ctrl-C is called. Ignored signals, as under `nohup`, stay ignored.
    """
    from shunter.engine.loop.interrupt import RECEIVED

    own = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:  # in a forked child, the signal has its default behaviour
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if number == signal.SIGTERM:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    RECEIVED.begin()


class Ending:
    """Exit handler that ends the process after all other exit handlers, once all output is written.

    The interpreter would first destroy every object, which takes seconds if torch and pandas are loaded.

    Attributes:
        status: Exit status of the process; initially the status of an unexpected error.
    """

    def __init__(self) -> None:
        self.status = 1
        self._process = os.getpid()
        atexit.register(self._end)  # handlers run in reverse order of their registration

    def _end(self) -> None:
        if os.getpid() != self._process:
            return
        from shunter.errors import OutputError

        try:
            sys.stdout.flush()
        except OutputError as error:
            self.status = self.status or error.exit_code
            with contextlib.suppress(OSError):
                print("" if error.is_pipe_closed else f"Error: {error}\n", end="", file=sys.stderr)
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(self.status)


if __name__ == "__main__":
    main()
