"""The learned scheduling policy at decision time: features of its agents, networks, limits, and policy file."""
