"""Prefect's server in a process of its own, told its host and port: what `uvicorn` would start, loaded in less time."""

import gc
import sys


def main() -> None:
    """Serve until told to end; what was loaded is no garbage, and nobody looks through it for some."""
    host, port = sys.argv[1:]
    gc.disable()
    import uvicorn
    from prefect.server.api.server import create_app

    app = create_app()
    gc.freeze()
    gc.enable()
    uvicorn.run(app, host=host, port=int(port), log_level="error", lifespan="on")


if __name__ == "__main__":
    main()
