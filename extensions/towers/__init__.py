"""Towers: groups of fields, each compressed on its own host before all fields interact.

`dmt` is the model family. `tower_partitioner` groups fields by their interactions. `partitions` measures the
interactions and returns the groups for a search. On several hosts, `host_recommender` trains each tower on the host of
its tables, and the hosts exchange the towers' vectors by `sptt`.
"""
