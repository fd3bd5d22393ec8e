"""One run as one page that needs no server."""
