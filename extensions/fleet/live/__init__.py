"""The policies on real machines: trainings are started, watched, stopped by their checkpoints, and moved."""
