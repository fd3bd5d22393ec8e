"""Worker process that ingests units of a log, see `shunter.ingestion.workers`.

Run as `python -m shunter.ingestion.worker DESCRIPTOR free|restricted`. DESCRIPTOR is the file descriptor of an
inherited connection to the parent process.
"""

import pickle
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from shunter.errors import DataError, first_line
from shunter.ingestion.sources.guard import restrict_where


class Worker:
    """Worker that prepares a shared object once and then processes one item after the other.

    Args:
        is_restricted: Whether the worker reads only paths that requests of other users may read.
    """

    def __init__(self, *, is_restricted: bool) -> None:
        self._prepared: Any = None
        if is_restricted:
            restrict_where(lambda: True)

    def do(self, prepare: Callable[[], Any] | None, work: Callable[[Any, Any], Any], item: Any) -> tuple[bool, Any]:
        """Process one item of work and return its result.

        Args:
            prepare: Makes the first argument of `work`; None to reuse the object of an earlier call.
            work: Function of the prepared object and the item.
            item: Second argument of `work`.

        Returns:
            Whether `work` failed, and the error or the result.
        """
        try:
            if prepare is not None:
                self._prepared = prepare()
            return False, work(self._prepared, item)
        except Exception as error:  # the caller in the parent process handles the error
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:  # an error class of another library whose arguments cannot be pickled
                reason = f"{type(error).__name__}: {first_line(error)}"
                return True, DataError(f"The log cannot be read ({reason}): check its files.")
            return True, error


def serve(connection: Connection, worker: Worker) -> None:
    """Serve requests from the connection until the other side closes the connection."""
    while True:
        try:
            prepare, work, item = connection.recv()
        except (EOFError, OSError):
            return
        try:
            connection.send(worker.do(prepare, work, item))
        except OSError:
            return


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), Worker(is_restricted=sys.argv[2] == "restricted"))
