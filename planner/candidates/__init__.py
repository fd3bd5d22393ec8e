"""Candidates of a decision: accelerators, and the placements on each of them."""
