"""Flows that a user starts, one per file; `cli` is the entry point of the command `shunter`."""
