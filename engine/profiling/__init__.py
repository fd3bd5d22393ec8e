"""Profiles of this machine's accelerators, measured at most once a day, and a model's workload for them."""
