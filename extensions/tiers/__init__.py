"""Embedding tables that are divided over device memory, host memory and disk."""
