"""Ingestion: turns click logs into arrays by reading, checking, encoding, splitting and caching by content."""
