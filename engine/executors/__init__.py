"""Where a training runs: in this process, in one of its own, in a group of processes, on a node of a Ray cluster."""
