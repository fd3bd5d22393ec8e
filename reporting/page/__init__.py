"""Report page of a run, as a single file that needs no server."""
