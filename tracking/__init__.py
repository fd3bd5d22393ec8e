"""Adapter to MLflow: runs, naming convention, history, outbox and model registry."""
