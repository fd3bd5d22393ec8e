"""Placement of embedding tables on memory tiers and nodes, after MTrainS (Kassa et al., arXiv 2305.01515).

`demand` computes the memory traffic of a table from the statistics of the data. `servers` describes the nodes, `hits`
predicts cache hits, and `nodes` fills the tiers and searches for the fewest nodes. All figures are simulated.
"""
