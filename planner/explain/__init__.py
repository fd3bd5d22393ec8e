"""The choice in words and tables."""
