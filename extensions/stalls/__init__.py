"""Stalls of a training step, measured by differences of runs, and its share of useful multiplications."""
