"""Which candidates keep the limits, and their order."""
