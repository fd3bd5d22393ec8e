"""Towers of fields (DMT, arXiv 2403.00877): what crosses hosts, what that would gain, what it costs in quality."""
