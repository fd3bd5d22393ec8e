"""Stalls of a training: where it waits, measured by differences of runs, and which multiplications count."""
