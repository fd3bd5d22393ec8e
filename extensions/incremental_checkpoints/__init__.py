"""Check-N-Run: checkpoints of the table rows that have changed, their remote copies, and increments of models."""
