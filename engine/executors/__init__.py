"""Executors of training jobs: in this process, a separate process, a process group, or on nodes of a Ray cluster."""
