"""Devices of a machine: processors, GPUs, their topology, the nodes of a cluster, and device settings."""
