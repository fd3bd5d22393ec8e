"""Feasibility of candidates under the limits, and their order."""
