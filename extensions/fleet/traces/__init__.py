"""Readers of job traces: published formats and our own."""
