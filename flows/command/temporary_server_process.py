"""Prefect's server in a process of its own, on the given host and port; starts faster than `uvicorn` would start it."""

import gc
import os
import signal
import sys
import threading


def main() -> None:
    """Serve until stopped; garbage collection is off during the imports, and later skips the imported objects."""
    host, port = sys.argv[1:]
    threading.Thread(target=_end_with_command, name="end-with-command", daemon=True).start()
    gc.disable()
    import uvicorn
    from prefect.server.api.server import create_app

    app = create_app()
    gc.freeze()
    gc.enable()
    uvicorn.run(app, host=host, port=int(port), log_level="error", lifespan="on")


def _end_with_command() -> None:
    """End this process when the command closes the other end of its standard input."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
