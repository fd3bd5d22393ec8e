"""Cost model of a training step: time, memory and power."""
