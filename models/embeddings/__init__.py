"""Kinds of embedding tables."""
