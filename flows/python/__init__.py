"""Python interface for scripts and notebooks: data frames as input, and objects for training runs and models."""
