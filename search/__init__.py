"""Hyperparameter search: spaces, studies, search methods, and how past studies are used."""
