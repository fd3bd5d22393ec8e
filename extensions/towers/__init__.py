"""Towers of fields: groups that are compressed before all fields meet, each on a host of its own.

`dmt` is the model family, of the modules of `tower_modules`. `tower_partitioner` groups fields by how they interact,
which `field_interactions` measures; `partitions` offers the groups to a search. On several hosts `host_recommender`
trains the towers where their tables are, which exchange vectors by `sptt`.
"""
