"""Trainings in several processes, on this machine or on the nodes of a Ray cluster, and the plans of their tables.

`planning` searches which device holds which table by simulating a step, `training` runs the processes, `tables` divides
the embedding tables, `executors` starts the processes here or on nodes, and `links` measures what they exchange.
"""
