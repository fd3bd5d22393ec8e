"""Shared statistics functions; the package imports only numpy."""
