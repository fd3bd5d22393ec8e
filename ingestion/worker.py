"""A process that works on units of a log, see `shunter.ingestion.workers`.

Run as `python -m shunter.ingestion.worker DESCRIPTOR free|restricted`, with the descriptor of a connection that it
inherits.
"""

import pickle
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from shunter.errors import DataError, first_line
from shunter.ingestion.sources.guard import restrict_where


class Worker:
    """What works in a process: it prepares once, and then works on one item after the other.

    Args:
        is_restricted: Whether it reads only what a request of others than this machine's user may.
    """

    def __init__(self, *, is_restricted: bool) -> None:
        self._prepared: Any = None
        if is_restricted:
            restrict_where(lambda: True)

    def do(self, prepare: Callable[[], Any] | None, work: Callable[[Any, Any], Any], item: Any) -> tuple[bool, Any]:
        """Work on an item.

        Args:
            prepare: Makes what the work needs besides; None for what was made before.
            work: The work.
            item: What it is done to.

        Returns:
            Whether it failed, and what came of it: the error, or the result.
        """
        try:
            if prepare is not None:
                self._prepared = prepare()
            return False, work(self._prepared, item)
        except Exception as error:  # it is the other side's to judge
            return True, _portable(error)


def serve(connection: Connection, worker: Worker) -> None:
    """Do one piece of work after the other, until the other side is gone."""
    while True:
        try:
            prepare, work, item = connection.recv()
        except (EOFError, OSError):
            return
        try:
            connection.send(worker.do(prepare, work, item))
        except OSError:
            return


def _portable(error: Exception) -> Exception:
    """The error itself, where it arrives as it is."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of another library, with arguments of its own
        return DataError(f"The log cannot be read ({type(error).__name__}: {first_line(error)}): look into its files.")
    return error


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), Worker(is_restricted=sys.argv[2] == "restricted"))
