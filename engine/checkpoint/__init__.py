"""Model files, checkpoints of training runs and warm starts."""
