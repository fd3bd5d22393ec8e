"""Scores over HTTP beside `mlflow models serve` of the same model."""
