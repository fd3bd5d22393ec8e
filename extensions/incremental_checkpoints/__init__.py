"""Check-N-Run: checkpoints of the table rows that have changed, copies of them elsewhere, and increments of models."""
