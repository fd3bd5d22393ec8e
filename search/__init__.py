"""Hyperparameter search: spaces, studies, search methods, and the use of past studies."""
