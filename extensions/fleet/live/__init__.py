"""Scheduling on real machines: training jobs are started, monitored, stopped with a checkpoint, and moved."""
