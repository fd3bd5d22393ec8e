"""Measurements of what surrounds an accelerator: the disk, and the links between processes."""
