"""Predictions of time, energy and memory for each candidate."""
