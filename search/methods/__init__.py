"""Search methods, which propose the next point to try: one protocol, one file for each method."""
