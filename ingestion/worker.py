"""A process that works on units of a log, see `ingestion.workers`.

Run as `python -m ingestion.worker DESCRIPTOR free|restricted`, with the descriptor of a connection that it inherits.
"""

import pickle
import sys
from multiprocessing.connection import Connection
from typing import Any

from ingestion.sources.guard import restrict_where
from shunter.errors import DataError, first_line


def serve(connection: Connection) -> None:
    """Do one piece of work after the other, until the other side is gone."""
    prepared: Any = None
    while True:
        try:
            prepare, work, item = connection.recv()
        except (EOFError, OSError):
            return
        try:
            if prepare is not None:
                prepared = prepare()
            answer = False, work(prepared, item)
        except Exception as error:  # it is the other side's to judge
            answer = True, _portable(error)
        try:
            connection.send(answer)
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
    if sys.argv[2] == "restricted":
        restrict_where(lambda: True)
    serve(Connection(int(sys.argv[1])))
