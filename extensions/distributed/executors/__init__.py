"""Executors of training runs in several processes: a group of processes on this machine, or the nodes of a cluster."""
