"""Embedding tables larger than memory, for scoring: rows in a file, with the most frequent rows in memory."""
