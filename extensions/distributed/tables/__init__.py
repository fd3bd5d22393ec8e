"""Embedding tables that are divided among processes, and their exchange of rows."""
