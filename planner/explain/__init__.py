"""Explanation of a decision as text and tables."""
