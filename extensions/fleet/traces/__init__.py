"""Readers of job traces in published formats."""
