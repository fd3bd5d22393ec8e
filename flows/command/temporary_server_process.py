"""Program that runs Prefect's server on the given host and port, and starts faster than with `uvicorn`.

The server ends with the command that started it. With three additional arguments (lock file, record and seconds), it
ends when no command has had the lock for this time, or the record is removed (`shunter.flows.command.daemons`).
"""

import fcntl
import gc
import os
import signal
import sys
import threading
import time
from pathlib import Path

POLL_SECONDS = 2.0


def main() -> None:
    """Run Prefect's server until it is stopped; garbage collection never scans the imported objects."""
    host, port, *idle = sys.argv[1:]

    def end() -> None:
        if idle:
            wait_until_idle(idle[0], idle[1], float(idle[2]))
        else:
            while os.read(0, 1):  # until the command closes the other end of the standard input
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, name="end", daemon=True).start()
    gc.disable()
    import uvicorn
    from prefect.server.api.server import create_app

    from shunter.flows.command.patient_database import begin_as_writer

    begin_as_writer()
    app = create_app()
    gc.freeze()
    gc.enable()
    uvicorn.run(app, host=host, port=int(port), log_level="error", lifespan="on")


def wait_until_idle(lock_path: str, record_path: str, idle_seconds: float, poll_seconds: float = POLL_SECONDS) -> int:
    """Wait until no command has used the server for some time, or its record is removed.

    Args:
        lock_path: File that commands lock while they use the server.
        record_path: Record of the server.
        idle_seconds: Seconds without a command after which the server ends.
        poll_seconds: Seconds between two checks.

    Returns:
        Open lock file, which no command can lock until it is closed.
    """
    lock = os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o600)
    used_at = time.monotonic()
    while True:
        time.sleep(poll_seconds)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            used_at = time.monotonic()
            continue
        if time.monotonic() - used_at >= idle_seconds or not Path(record_path).exists():
            return lock
        fcntl.flock(lock, fcntl.LOCK_UN)


if __name__ == "__main__":
    main()
