"""Training runs in several processes, on this machine or on the nodes of a Ray cluster, and the plans of their tables.

Package `planning` assigns tables to devices by simulating a step. Package `training` runs the processes, and `tables`
divides the embedding tables. Package `executors` starts the processes on this machine or on nodes, and `links` measures
their communication.
"""
