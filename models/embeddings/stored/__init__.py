"""Embedding tables for scoring that are larger than memory: rows in a file, those that are asked for most in memory."""
