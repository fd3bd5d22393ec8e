"""Traces: files of jobs as others publish them, jobs of our own, and generated loads."""
