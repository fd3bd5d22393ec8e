"""Model registry in MLflow: registration, checks before loading, and versions."""
