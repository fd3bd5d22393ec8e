"""Processes and nodes that form a group, and the measured cost of what they exchange."""
