"""Loggers beside MLflow: TensorBoard and Weights & Biases."""
