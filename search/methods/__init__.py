"""Search methods, which propose the next point of a search space to train."""
