"""Prefect's server in a process of its own, told its host and port: what `uvicorn` would start, loaded in less time."""

import gc
import os
import signal
import sys
import threading


def main() -> None:
    """Serve until told to end; what was loaded is no garbage, and nobody looks through it for some."""
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
    """End this process when the command that holds the other end of its standard input is gone."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
