"""Ensembles beside single models that cost as much, and how often a promised quality holds."""
