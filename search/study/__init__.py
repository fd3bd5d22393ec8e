"""Execution, recording, early stopping and resumption of trials."""
