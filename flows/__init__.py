"""Prefect flows that a user starts, and the command `shunter`, whose entry point is `cli`."""
