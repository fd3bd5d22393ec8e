"""Report page of a run, which needs no server."""
