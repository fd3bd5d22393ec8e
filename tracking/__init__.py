"""The adapter to MLflow: runs, naming convention, history, outbox, registry."""
