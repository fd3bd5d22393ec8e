"""Additional loggers besides MLflow: TensorBoard and Weights & Biases."""
