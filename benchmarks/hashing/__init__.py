"""Ids that share rows by a learned map, beside ids that chance brings together, in equal bytes."""
