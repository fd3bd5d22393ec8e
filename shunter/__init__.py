"""Base package: errors for users, settings, requests, and helpers for files and statistics.

Every other folder may import this package. It imports none of them.
"""
